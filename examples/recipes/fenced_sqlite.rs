//! Rows that refuse a late writer, in SQLite: the fence is checked in the write's own transaction.
//!
//! `cargo run -p lockmacro-recipes --example fenced_sqlite`

use lockmacro_runtime::{Fence, Lock, LockError, LockManager};
use rusqlite::{Connection, Result, TransactionBehavior};

const TABLES: &str = "CREATE TABLE stock (id INTEGER PRIMARY KEY, amount BIGINT NOT NULL);
    INSERT INTO stock VALUES (7, 100);
    ALTER TABLE stock ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;
    CREATE TABLE fences (key TEXT PRIMARY KEY, fence BIGINT NOT NULL)";

/// One row with a column for the fence. `false`: somebody else holds the lock by now.
fn count(db: &Connection, amount: i64, fence: Fence) -> Result<bool> {
    let write = "UPDATE stock SET amount = ?1, fence = ?2 WHERE id = 7 AND fence <= ?2";
    Ok(db.execute(write, [amount, fence.into()])? == 1)
}

/// Several rows with a table of fences. The first statement locks the row of the fence until the end
/// of the transaction.
fn sell(db: &mut Connection, sold: i64, fence: Fence) -> Result<bool> {
    let write = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let raise = "INSERT INTO fences (key, fence) VALUES ('stock:7', ?1)
        ON CONFLICT (key) DO UPDATE SET fence = excluded.fence WHERE fences.fence <= excluded.fence";
    if write.execute(raise, [i64::from(fence)])? == 0 {
        return Ok(false); // dropped without a commit, so rolled back
    }
    write.execute("UPDATE stock SET amount = amount - ?1 WHERE id = 7", [sold])?;
    write.commit()?;
    Ok(true)
}

async fn grant(locks: &LockManager) -> std::result::Result<Fence, LockError> {
    let guard = Lock::new("stock:7").fenced().manager(locks).acquire().await?;
    let fence = guard.fence().expect("it is fenced");
    guard.release().await?;
    Ok(fence)
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let locks = LockManager::connect("memory://").await?; // or "redis://…"
    let mut db = Connection::open_in_memory()?;
    db.execute_batch(TABLES)?;
    // The first holder is paused, loses its lock, and goes on after the second one has written.
    let (paused, next) = (grant(&locks).await?, grant(&locks).await?);
    assert!(count(&db, 90, next)? && sell(&mut db, 5, next)?);
    assert!(!count(&db, 100, paused)? && !sell(&mut db, 50, paused)?);
    let left: i64 = db.query_row("SELECT amount FROM stock", [], |row| row.get(0))?;
    assert_eq!(left, 85);
    Ok(())
}

#[test]
fn a_late_writer_is_refused() {
    main().expect("refused");
}
