//! One process leads, and another one takes over when it ends.
//!
//! `cargo run -p lockmacro-recipes --example leader`

use lockmacro_runtime::{Lock, LockError, LockManager};
use tokio::time::{Duration, sleep};

/// Waits for the lead, and works as the leader until the work is done or the lead is lost. A lease of
/// a second is how long after a crash nobody leads.
async fn lead(locks: &LockManager, name: &'static str) -> Result<&'static str, LockError> {
    let lead = Lock::new("leader").ttl(Duration::from_secs(1)).renew().wait_forever();
    lead.name(name)
        .manager(locks)
        .run(async {
            println!("{name} leads");
            sleep(Duration::from_millis(100)).await; // the work: it is dropped when the lead is lost
            Ok(name)
        })
        .await
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let locks = LockManager::connect("memory://").await?; // or "redis://…"
    let (first, next) = (lead(&locks, "anna"), lead(&locks, "bert"));
    // A leader that is stopped, as by a deployment: the next one leads at once.
    let stopped = tokio::time::timeout(Duration::from_millis(20), first).await;
    assert!(stopped.is_err());
    assert_eq!(next.await?, "bert");
    locks.shutdown(Duration::from_secs(5)).await
}

#[test]
fn the_next_one_leads() {
    assert_eq!(main(), Ok(()));
}
