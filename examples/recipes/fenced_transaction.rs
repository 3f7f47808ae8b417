//! A transaction that a late writer cannot commit: locks and data are in one PostgreSQL database,
//! and the fence is checked in the write's own transaction.
//!
//! `DATABASE_URL=postgres://postgres@localhost/postgres
//! cargo run -p lockmacro-recipes --example fenced_transaction`

use lockmacro_runtime::fence::{FenceCheck, LATE_SQLSTATE};
use lockmacro_runtime::{Lock, LockError, LockManager};
use tokio_postgres::{Client, Error, NoTls};

/// The stock.
pub const TABLE: &str = "CREATE TABLE stock (id BIGINT PRIMARY KEY, amount BIGINT NOT NULL);
    INSERT INTO stock VALUES (7, 100)";

/// Sells under the lock `stock:7`. The check fails if somebody else holds the lock by now. Until the
/// end of the transaction nobody else is granted it.
pub async fn sell(db: &mut Client, sold: i64, check: &FenceCheck) -> Result<(), Error> {
    let write = db.transaction().await?;
    write.execute(check.sql(), &[&check.key(), &check.fence()]).await?;
    write.execute("UPDATE stock SET amount = amount - $1 WHERE id = 7", &[&sold]).await?;
    write.commit().await
}

/// Whether somebody else holds the lock by now.
pub fn is_late(error: &Error) -> bool {
    error.code().is_some_and(|code| code.code() == LATE_SQLSTATE)
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
    assert!(sell(&mut db, 50, &paused).await.is_err_and(|error| is_late(&error)));
    sell(&mut db, 5, &next).await?;
    println!("the late writer is refused");
    Ok(())
}
