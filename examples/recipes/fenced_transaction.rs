//! A transaction that a late writer cannot commit: locks and data are in one PostgreSQL database,
//! and the fence is checked in the write's own transaction.
//!
//! `DATABASE_URL=postgres://postgres@localhost/postgres
//! cargo run -p lockmacro-recipes --example fenced_transaction`

use lockmacro_runtime::fence::FenceCheck;
use lockmacro_runtime::{Lock, LockError, LockManager};
use tokio_postgres::{Client, Error, NoTls};

/// The stock.
pub const TABLE: &str = "CREATE TABLE stock (id BIGINT PRIMARY KEY, amount BIGINT NOT NULL);
    INSERT INTO stock VALUES (7, 100)";

/// Sells under the lock `stock:7`. `false`: somebody else holds the lock by now. Until the end of
/// the transaction nobody else is granted it.
pub async fn sell(db: &mut Client, sold: i64, check: &FenceCheck) -> Result<bool, Error> {
    let write = db.transaction().await?;
    let in_time =
        write.query_one(check.sql(), &[&check.key(), &check.fence()]).await?.try_get(0)?;
    if in_time {
        write.execute("UPDATE stock SET amount = amount - $1 WHERE id = 7", &[&sold]).await?;
        write.commit().await?;
    }
    // Without a commit it is rolled back.
    Ok(in_time)
}

/// Stands for a holder.
pub async fn grant(locks: &LockManager) -> Result<FenceCheck, LockError> {
    let guard = Lock::new("stock:7").manager(locks).fenced().acquire().await?;
    let check = guard.fence_check()?;
    guard.release().await?;
    Ok(check)
}

#[tokio::main]
#[allow(dead_code, reason = "its test calls the functions")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let locks = LockManager::connect(&format!("{url}?install=1")).await?;
    let (mut db, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    db.batch_execute(&TABLE.replace("CREATE TABLE", "CREATE TEMP TABLE")).await?;
    // The first holder is paused, loses its lock, and goes on when the second one has it.
    let (paused, next) = (grant(&locks).await?, grant(&locks).await?);
    assert!(!sell(&mut db, 50, &paused).await? && sell(&mut db, 5, &next).await?);
    println!("the late writer is refused");
    Ok(())
}
