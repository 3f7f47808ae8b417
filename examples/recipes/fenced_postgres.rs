//! Rows that refuse a late writer, in PostgreSQL: the fence is checked in the write's own
//! transaction.
//!
//! `DATABASE_URL=postgres://localhost/postgres
//! cargo run -p lockmacro-recipes --example fenced_postgres`

use lockmacro_runtime::{Fence, Lock, LockError, LockManager};
use tokio_postgres::{Client, Error, NoTls};

/// The stock with a fence for each row, and fences of their own.
pub const TABLES: &str = "
    CREATE TEMP TABLE stock (id BIGINT PRIMARY KEY, amount BIGINT NOT NULL);
    INSERT INTO stock VALUES (7, 100);
    ALTER TABLE stock ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;
    CREATE TEMP TABLE fences (key TEXT PRIMARY KEY, fence BIGINT NOT NULL)";
/// Changes no row when a later holder has written.
pub const RAISE: &str = "INSERT INTO fences (key, fence) VALUES ('stock:7', $1)
    ON CONFLICT (key) DO UPDATE SET fence = excluded.fence WHERE fences.fence <= excluded.fence";

/// One row with a column for the fence. `false`: somebody else holds the lock by now.
pub async fn count(db: &Client, amount: i64, fence: Fence) -> Result<bool, Error> {
    let write = "UPDATE stock SET amount = $1, fence = $2 WHERE id = 7 AND fence <= $2";
    Ok(db.execute(write, &[&amount, &i64::from(fence)]).await? == 1)
}

/// Several rows with a table of fences. The first statement locks the row of the fence until the end
/// of the transaction.
pub async fn sell(db: &mut Client, sold: i64, fence: Fence) -> Result<bool, Error> {
    let write = db.transaction().await?;
    if write.execute(RAISE, &[&i64::from(fence)]).await? == 0 {
        return Ok(false); // dropped without a commit, so rolled back
    }
    write.execute("UPDATE stock SET amount = amount - $1 WHERE id = 7", &[&sold]).await?;
    write.commit().await?;
    Ok(true)
}

/// Stands for a holder.
pub async fn grant(locks: &LockManager) -> Result<Fence, LockError> {
    let guard = Lock::new("stock:7").fenced().manager(locks).acquire().await?;
    let fence = guard.fence().expect("it is fenced");
    guard.release().await?;
    Ok(fence)
}

#[tokio::main]
#[allow(dead_code, reason = "its test calls the functions")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = LockManager::connect("memory://").await?; // or "redis://…"
    let (mut db, connection) =
        tokio_postgres::connect(&std::env::var("DATABASE_URL")?, NoTls).await?;
    tokio::spawn(connection);
    db.batch_execute(TABLES).await?;
    // The first holder is paused, loses its lock, and goes on after the second one has written.
    let (paused, next) = (grant(&locks).await?, grant(&locks).await?);
    assert!(count(&db, 90, next).await? && sell(&mut db, 5, next).await?);
    assert!(!count(&db, 100, paused).await? && !sell(&mut db, 50, paused).await?);
    println!("the late writer is refused");
    Ok(())
}
