//! A program that knows lockmacro from its documentation only. Its argument is a server's URL.
//!
//! Each function asserts, inside of its body, that its key is held.

// An expansion never causes a warning.
#![deny(unused)]

mod shapes;

use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockManager};
use shapes::*;

/// Whether `key` is held, as a task of its own sees it.
pub async fn held(key: &str) -> bool {
    let lock = Lock::new(key).ttl(Duration::from_secs(60));
    let asking = tokio::spawn(async move {
        match lock.acquire().await {
            // Waited for: a dropped guard is released a moment later.
            Ok(guard) => guard.release().await.is_err(),
            Err(error) => error.is_busy(),
        }
    });
    asking.await.unwrap_or(false)
}

/// Whether `key` is held, as another thread sees it.
pub fn held_now(key: &str) -> bool {
    let lock = Lock::new(key).ttl(Duration::from_secs(60));
    let asking = std::thread::spawn(move || match lock.acquire_blocking() {
        Ok(guard) => guard.release_blocking().is_err(),
        Err(error) => error.is_busy(),
    });
    asking.join().unwrap_or(false)
}

async fn check(name: &str, key: &str, ok: bool) {
    assert!(ok, "{name}");
    assert!(!held(key).await, "{name} left {key} behind");
    println!("{name} locked and released");
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locks = LockManager::connect(&url).await?;
    locks.install()?;
    let mut desk = Desk { tenant: "acme".to_owned(), served: 0, locks: locks.clone() };

    check("a template", "order:1", audit(1).await == Ok(1)).await;
    check("a fixed key", "nightly-report", nightly().await.is_ok()).await;
    check("&mut self", "desk:acme", desk.serve().await == Ok(1)).await;
    check("a manager of its own", "own:acme", desk.own_manager().await.is_ok()).await;
    check("generics", "generic:9", generic(9_u8).await == Ok(9)).await;
    check("async_trait", "boxed:w", BoxedWork::work(&Plain("w")).await.is_ok()).await;
    check("a sync function", "sync:1", sync(1) == Ok(1)).await;
    // SAFETY: the function does nothing unsafe.
    check("an unsafe function", "unsafe:1", unsafe { unchecked(1) }.await.is_ok()).await;
    check("another crate path", "path:1", path(1).await.is_ok()).await;

    when_busy(&locks).await?;
    locks.shutdown(Duration::from_secs(5)).await
}

async fn when_busy(locks: &LockManager) -> Result<(), LockError> {
    let key = "busy:1";
    let held = Lock::new(key).ttl(Duration::from_secs(60)).manager(locks).acquire().await?;
    let error = message(1).await.expect_err("held");
    assert!(error.is_busy() && error.to_string().contains("1 is being audited"), "{error}");
    assert_eq!(skip_option(1).await, None);
    skip_unit(1).await;
    assert_eq!(fallback(1, "x").await, Ok("later 1 x".to_owned()));
    assert_eq!(sync_fallback(1), Ok(-1));
    held.release().await?;
    check("a message", key, message(1).await.is_ok()).await;
    check("skip with an option", key, skip_option(1).await == Some(1)).await;
    check("skip with nothing", key, SKIPPED.load(std::sync::atomic::Ordering::SeqCst) == 0).await;
    check("a fallback", key, fallback(1, "x").await == Ok("now 1 x".to_owned())).await;
    check("a sync fallback", key, sync_fallback(1) == Ok(1)).await;
    Ok(())
}
