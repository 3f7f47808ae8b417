//! The transactions of docs/fences.md with the server of `DATABASE_URL`: each writes in time, and
//! is refused when it is late.

use diesel::QueryableByName;
use diesel::sql_query;
use diesel::sql_types::{BigInt, Bool, Text};
use diesel_async::scoped_futures::ScopedFutureExt as _;
use diesel_async::{AsyncConnection as _, AsyncPgConnection};
use lockmacro_runtime::fence::FenceCheck;
use lockmacro_runtime::{Lock, LockManager, distributed_lock};
use sea_orm::{
    ConnectionTrait as _, DatabaseConnection, DbBackend, DbErr, Statement, TransactionTrait as _,
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
    assert!(!with_sqlx(&sqlx, &late, 50).await? && with_sqlx(&sqlx, &check, 1).await?);
    assert!(!with_diesel(&mut diesel, &late, 50).await?);
    assert!(with_diesel(&mut diesel, &check, 2).await?);
    assert!(!with_sea_orm(&sea_orm, &late, 50).await?);
    assert!(with_sea_orm(&sea_orm, &check, 4).await?);
    locks.install()?;
    assert!(sell(7, 8, &mut db).await?);
    // The body's grant was a later one.
    assert!(!with_sqlx(&sqlx, &check, 50).await?);
    let amount: i64 = db.query_one("SELECT amount FROM stock", &[]).await?.get(0);
    assert_eq!(amount, 100 - 15);
    println!("each was in time once, and late once");
    Ok(())
}
