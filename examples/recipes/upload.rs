//! An upload of many parts: each part extends the lease, so that a stuck upload ends soon.
//!
//! `cargo run -p lockmacro-recipes --example upload`

use lockmacro_runtime::{LockError, LockManager, distributed_lock};
use tokio::time::{Duration, sleep};

/// A part takes less than this.
const PART: Duration = Duration::from_millis(300);

#[distributed_lock(key = "upload:<name>", ttl = PART, guard = lock)]
async fn upload(name: &str, parts: &[&str]) -> Result<String, LockError> {
    let mut stored = String::new();
    for part in parts {
        // Another part's time from now on. It fails when the lock is lost.
        lock.extend(PART).await?;
        sleep(Duration::from_millis(100)).await; // sends it
        stored.push_str(part);
    }
    Ok(stored)
}

/// A part that takes too long: the lease ends, and the body is stopped at its await.
#[distributed_lock(key = "upload:<name>", ttl = PART, guard = lock)]
async fn stuck(name: &str) -> Result<String, LockError> {
    lock.extend(PART).await?;
    sleep(Duration::from_secs(3600)).await;
    Ok(name.to_owned())
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    LockManager::connect("memory://").await?.install()?; // or "redis://…"
    // Longer than one lease, as each part extends it.
    let stored = upload("film", &["a", "b", "c", "d", "e"]).await?;
    assert_eq!(stored, "abcde");
    let lost = stuck("film").await.expect_err("stopped");
    println!("{stored} is stored; {lost}");
    assert!(matches!(lost, LockError::Lost(_)));
    Ok(())
}

#[test]
fn parts_extend_the_lease_and_a_stuck_one_ends() {
    assert_eq!(main(), Ok(()));
}
