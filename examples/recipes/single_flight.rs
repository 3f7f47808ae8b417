//! Many callers want a value that is slow to make. One makes it, and the others find it made.
//!
//! `cargo run -p lockmacro-recipes --example single_flight`

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use lockmacro_runtime::{LockError, LockManager, distributed_lock};
use tokio::time::{Duration, sleep};

/// Stands for a cache that all processes share.
static CACHE: Mutex<Option<HashMap<u64, String>>> = Mutex::new(None);
static MADE: AtomicU32 = AtomicU32::new(0);

fn cached(id: u64) -> Option<String> {
    CACHE.lock().ok()?.as_ref()?.get(&id).cloned()
}

async fn report(id: u64) -> Result<String, LockError> {
    match cached(id) {
        Some(report) => Ok(report),
        None => make(id).await,
    }
}

#[distributed_lock(key = "report:<id>", ttl = "30s", wait = "10s")]
async fn make(id: u64) -> Result<String, LockError> {
    // Whoever waited looks again: the holder before has made it.
    if let Some(report) = cached(id) {
        return Ok(report);
    }
    sleep(Duration::from_millis(100)).await; // slow
    MADE.fetch_add(1, Ordering::Relaxed);
    let report = format!("report {id}");
    if let Ok(mut cache) = CACHE.lock() {
        cache.get_or_insert_default().insert(id, report.clone());
    }
    Ok(report)
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    LockManager::connect("memory://").await?.install()?; // or "redis://…"
    let calls: Vec<_> = (0..100).map(|_| tokio::spawn(report(7))).collect();
    for call in calls {
        assert_eq!(call.await.expect("no panic")?, "report 7");
    }
    println!("100 callers, made {} time", MADE.load(Ordering::Relaxed));
    assert_eq!(MADE.load(Ordering::Relaxed), 1);
    Ok(())
}

#[test]
fn it_is_made_once() {
    assert_eq!(main(), Ok(()));
}
