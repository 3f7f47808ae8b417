//! The settings of a team in one place, dry runs without a lock, and a batch under one lock.
//!
//! `cargo run -p lockmacro-recipes --example shared_settings`

use std::time::Duration;

use lockmacro_runtime::{LockError, LockManager, distributed_lock};

/// How long an order stays locked after its process has died.
const TTL: Duration = Duration::from_secs(30);

/// How long a person at a desk waits.
const PATIENCE: Duration = Duration::from_millis(300);

/// A dry run changes nothing, so it needs no lock.
async fn audit(id: u64, dry_run: bool) -> Result<String, LockError> {
    if dry_run { Ok(format!("order {id} could be audited")) } else { audit_now(id).await }
}

#[distributed_lock(key = "order:<id>", ttl = TTL, renew)]
async fn audit_now(id: u64) -> Result<String, LockError> {
    Ok(format!("order {id} is audited"))
}

/// A batch has the locks of all of its orders, or none of them. `audit_now` joins them.
#[distributed_lock(
    key = keys(ids.iter().map(|id| format!("order:{id}"))),
    ttl = 2 * TTL,
    renew,
    wait = "60s"
)]
async fn audit_all(ids: &[u64]) -> Result<usize, LockError> {
    for id in ids {
        println!("{}", audit_now(*id).await?);
    }
    Ok(ids.len())
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    // What most functions need is a default of the manager, which an argument overrides.
    let locks = LockManager::builder().default_wait(PATIENCE);
    locks.connect("memory://").await?.install()?; // or "redis://…"
    assert_eq!(audit(42, true).await?, "order 42 could be audited");
    assert_eq!(audit(42, false).await?, "order 42 is audited");
    assert_eq!(audit_all(&[42, 43, 44]).await?, 3);
    Ok(())
}

#[test]
fn dry_runs_orders_and_batches_are_audited() {
    assert_eq!(main(), Ok(()));
}
