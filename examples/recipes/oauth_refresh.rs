//! Many replicas need one access token, and the provider revokes a refresh token that is used
//! twice. One caller refreshes it, and the others get what it got.
//!
//! `cargo run -p lockmacro-recipes --example oauth_refresh`

use std::sync::atomic::{AtomicU32, Ordering};

use lockmacro_runtime::{LockError, LockManager, distributed_lock};
use tokio::time::{Duration, sleep};

/// For how long an access token is reused: shorter than it is valid.
const FRESH: Duration = Duration::from_millis(500);

/// The refresh token in the database, and the one that the provider takes next.
static STORED: AtomicU32 = AtomicU32::new(0);
static VALID: AtomicU32 = AtomicU32::new(0);

/// Uses the refresh token, and returns an access token.
async fn refresh() -> Result<u32, LockError> {
    let refresh = STORED.load(Ordering::SeqCst);
    sleep(Duration::from_millis(20)).await;
    assert_eq!(refresh, VALID.fetch_add(1, Ordering::SeqCst), "revoked: it was used twice");
    STORED.store(refresh + 1, Ordering::SeqCst);
    Ok(refresh + 1)
}

#[distributed_lock(key = "oauth:<tenant>", on_busy = reuse(keep = FRESH), manager = locks)]
async fn access_token(locks: &LockManager, tenant: &str) -> Result<u32, LockError> {
    refresh().await
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    // Two processes would each have `LockManager::connect("redis://…").await?`.
    let url = "memory://";
    let replicas = [LockManager::connect(url).await?, LockManager::connect(url).await?];
    for round in 1..=2 {
        let calls = (0..100).map(|nth| {
            let locks = replicas[nth % replicas.len()].clone();
            tokio::spawn(async move { access_token(&locks, "acme").await })
        });
        for call in calls.collect::<Vec<_>>() {
            assert_eq!(call.await.expect("no panic")?, round);
        }
        println!("100 callers, and the provider was called {round} times");
        sleep(2 * FRESH).await;
    }
    Ok(())
}

#[test]
fn each_refresh_token_is_used_once() {
    assert_eq!(main(), Ok(()));
}
