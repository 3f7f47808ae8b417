//! The transactions of docs/fences.md with the server of `DATABASE_URL`: each writes in time, and
//! is refused when it is late.

use diesel::sql_query;
use diesel::sql_types::{BigInt, Text};
use diesel_async::scoped_futures::ScopedFutureExt as _;
use diesel_async::{AsyncConnection as _, AsyncPgConnection};
use lockmacro_runtime::fence::{FenceCheck, LATE_SQLSTATE};
use lockmacro_runtime::{Lock, LockManager, distributed_lock};
use sea_orm::{
    ConnectionTrait as _, DatabaseConnection, DbBackend, DbErr, RuntimeErr, Statement,
    TransactionTrait as _,
};
use tokio_postgres::{Client, NoTls};

type Failure = Box<dyn std::error::Error + Send + Sync>;

include!(concat!(env!("OUT_DIR"), "/writes.rs"));

async fn grant(locks: &LockManager) -> Result<FenceCheck, Failure> {
    let guard = Lock::new("stock:7").manager(locks).fenced().acquire().await?;
    let check = guard.fence_check()?;
    guard.release().await?;
    Ok(check)
}

/// Whether the transaction was refused, as the drivers with sqlx show it.
fn is_late(written: &Result<(), Failure>) -> bool {
    let Err(error) = written else { return false };
    let error = match error.downcast_ref() {
        Some(DbErr::Exec(RuntimeErr::SqlxError(error))) => Some(error),
        _ => error.downcast_ref(),
    };
    let error = error.and_then(sqlx::Error::as_database_error);
    error.and_then(|error| error.code()).as_deref() == Some(LATE_SQLSTATE)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::var("DATABASE_URL")?;
    let locks = LockManager::connect(&format!("{url}?install=1&key_prefix=shop:")).await?;
    let (mut db, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    let table = "CREATE TABLE stock (id BIGINT PRIMARY KEY, amount BIGINT NOT NULL);
        INSERT INTO stock VALUES (7, 100)";
    db.batch_execute(table).await?;
    let sqlx = sqlx::PgPool::connect(&url).await?;
    let mut diesel = AsyncPgConnection::establish(&url).await?;
    let sea_orm = sea_orm::Database::connect(&url).await?;

    let late = grant(&locks).await?;
    let check = grant(&locks).await?;
    assert!(is_late(&with_sqlx(&sqlx, &late, 50).await));
    with_sqlx(&sqlx, &check, 1).await?;
    let refused = with_diesel(&mut diesel, &late, 50).await.expect_err("late").to_string();
    assert!(refused.contains("is late"), "{refused}");
    with_diesel(&mut diesel, &check, 2).await?;
    assert!(is_late(&with_sea_orm(&sea_orm, &late, 50).await));
    with_sea_orm(&sea_orm, &check, 4).await?;
    locks.install()?;
    sell(7, 8, &mut db).await?;
    // The body's grant was a later one.
    assert!(is_late(&with_sqlx(&sqlx, &check, 50).await));
    // On a pool, and in what a library makes of a transaction in a transaction.
    let check = grant(&locks).await?;
    let on_a_pool = sqlx::query(check.sql()).bind(check.key()).bind(check.fence());
    let refused = on_a_pool.execute(&sqlx).await.expect_err("autocommit").to_string();
    assert!(refused.contains("not in a transaction"), "{refused}");
    let outer = sea_orm.begin().await?;
    let inner = outer.begin().await?;
    let values = [check.key().into(), check.fence().into()];
    let nested = Statement::from_sql_and_values(DbBackend::Postgres, check.sql(), values);
    let refused = inner.execute(nested).await.expect_err("a savepoint").to_string();
    assert!(refused.contains("in a savepoint"), "{refused}");
    drop((inner, outer));
    let amount: i64 = db.query_one("SELECT amount FROM stock", &[]).await?.get(0);
    assert_eq!(amount, 100 - 15);
    println!("each was in time once, and late once");
    Ok(())
}
