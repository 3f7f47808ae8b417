//! Work that is needed only under a condition: look, lock, and look again.
//!
//! `cargo run -p lockmacro-recipes --example condition`

use std::sync::atomic::{AtomicI64, Ordering};

use lockmacro_runtime::{LockError, LockManager, distributed_lock};

/// Stands for a row of a database.
static STOCK: AtomicI64 = AtomicI64::new(3);
const LEAST: i64 = 5;

/// Most calls end at the first look, without a lock and without traffic.
async fn sold(sku: &str) -> Result<Option<i64>, LockError> {
    let left = STOCK.fetch_sub(1, Ordering::SeqCst) - 1;
    if left < LEAST { reorder(sku).await } else { Ok(None) }
}

/// The first look may be old by the time the lock is granted, so the body looks again. A caller that
/// finds the lock busy has nothing left to do: another one is reordering.
#[distributed_lock(key = "reorder:<sku>", ttl = "30s", on_busy = skip)]
async fn reorder(sku: &str) -> Result<Option<i64>, LockError> {
    if STOCK.load(Ordering::SeqCst) >= LEAST {
        return Ok(None);
    }
    println!("{sku} is reordered");
    Ok(Some(STOCK.fetch_add(10, Ordering::SeqCst) + 10))
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    LockManager::connect("memory://").await?.install()?; // or "redis://…"
    assert_eq!(sold("chair").await?, Some(12));
    assert_eq!(sold("chair").await?, None);
    Ok(())
}

#[test]
fn it_is_reordered_once() {
    assert_eq!(main(), Ok(()));
}
