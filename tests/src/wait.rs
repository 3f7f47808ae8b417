//! Waiting for an event with a bound, never for a guessed time.

use std::future::Future;
use std::time::{Duration, Instant};

/// Asks again and again until `condition` holds; panics with `claim` when it does not in time.
pub async fn eventually<C, F>(claim: &str, within: Duration, mut condition: C)
where
    C: FnMut() -> F,
    F: Future<Output = bool>,
{
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < within, "not within {within:?}: {claim}");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

/// Gives up on a test that hangs.
pub async fn in_time<F: Future>(test: F) -> F::Output {
    let limit = Duration::from_secs(600);
    tokio::time::timeout(limit, test).await.expect("a test that hangs is a test that fails")
}

/// Runs `work` on a thread that knows of no runtime, without blocking this one.
pub async fn on_a_plain_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (answer, received) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || answer.send(work()));
    received.await.expect("the work on the thread did not panic")
}
