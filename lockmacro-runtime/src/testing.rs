//! For users' own tests, of locked functions and of [stores](conformance).

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{advance, sleep, timeout};

use crate::manager::lock_manager::LockManager;
use crate::run::waits::WaitCount;
use crate::value::limits::TTL_MAX;

pub mod conformance;

/// How long a call may take by the paused clock, before its loss and after it.
const LONGEST: Duration = TTL_MAX;
/// How often the bodies of a call may wait.
const WAITS_MAX: usize = 100_000;

const ENDLESS: &str = "a call does not end, so that its awaits cannot be lost one after the other: \
    let the body end after some rounds in the test";
const NO_BODY: &str = "nothing was tested, as no body ran under a lock in this task: the call takes \
    no lock, its lock was refused, or it is in a spawned task";
const NO_WAIT: &str = "nothing was tested, as the body has never waited: let what it awaits wait \
    once, as by `tokio::task::yield_now().await`";

/// What [`lose_at_every_await`] has found. Its `Display` says it in a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "it says whether the check has failed"]
pub struct LossReport {
    /// How often the bodies of the last call have waited.
    pub awaits: usize,
    /// The await, counted from 1, at which a loss makes the check fail; 0 when it fails without a
    /// loss.
    pub failed_at: Option<usize>,
}

impl LossReport {
    /// Returns whether the check has passed after a loss at each of the awaits.
    pub fn is_sound(&self) -> bool {
        self.failed_at.is_none()
    }
}

impl fmt::Display for LossReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.failed_at {
            Some(0) => f.write_str("the check fails although the lock is not lost"),
            Some(nth) => {
                write!(f, "the check fails when the lock is lost at await {nth} of the body")
            }
            None => write!(f, "the check passes for a loss at each of {} awaits", self.awaits),
        }
    }
}

/// Calls a locked function again and again, and loses its lock each time at another await. Finds
/// the awaits at which a body must not be stopped.
///
/// The first call loses nothing. In the next ones all leases end where the call waits for the first
/// time, the second, and so on. By default the body is dropped there, and the call returns
/// [`LockError::Lost`](crate::LockError::Lost). `check` is given what each call returns, and says
/// whether all is as it should be. The last call waits less often than that, and loses nothing
/// again. The locks of all calls are in memory, as by [`LockManager::isolated_memory`] and
/// [`scope`](LockManager::scope).
///
/// Returns a [`LossReport`], which prints what was found. Only the awaits of bodies count, those of
/// locked functions and of [`Lock::run`](crate::Lock::run) on this task. A body that awaits two
/// things at once may wait more often than it has awaits.
///
/// ```
/// use std::cell::Cell;
/// use std::time::Duration;
/// use lockmacro_runtime::{LockError, distributed_lock, testing::lose_at_every_await};
/// use tokio::time::sleep;
///
/// #[derive(Default)]
/// struct Shop {
///     stock: Cell<i32>,
///     sold: Cell<i32>,
/// }
///
/// #[distributed_lock(key = "stock", ttl = "10s")]
/// async fn sell(shop: &Shop) -> Result<(), LockError> {
///     sleep(Duration::from_secs(1)).await; // asks for the price
///     shop.stock.set(shop.stock.get() - 1);
///     sleep(Duration::from_secs(1)).await; // writes that to the database
///     shop.sold.set(shop.sold.get() + 1);
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// // In a test with `#[tokio::test(start_paused = true)]`.
/// let call = || async {
///     let shop = Shop::default();
///     let _lost = sell(&shop).await;
///     shop
/// };
/// let is_sound = async |shop: Shop| shop.stock.get() + shop.sold.get() == 0;
/// let found = lose_at_every_await(call, is_sound).await;
/// // What is sold has left the stock, and is not counted. A sound call passes
/// // `assert!(found.is_sound(), "{found}")`.
/// assert_eq!(found.to_string(), "the check fails when the lock is lost at await 2 of the body");
/// # }
/// ```
///
/// # Panics
/// - When the clock is not paused, as tokio's `advance` does.
/// - When nothing was tested, because no body waited: the call takes no lock, does its work in a
///   spawned task, or awaits only what is ready at once.
/// - When a call has not ended after a day of the paused clock, or has waited 100,000 times. A
///   renewed body that never ends is tested by one that ends after some rounds.
pub async fn lose_at_every_await<F: Future>(
    call: impl Fn() -> F,
    check: impl AsyncFn(F::Output) -> bool,
) -> LossReport {
    let locks = LockManager::isolated_memory();
    let mut nth = 0;
    loop {
        let mut call = pin!(locks.scope(call()));
        let mut limit = pin!(sleep(LONGEST));
        let waits = Arc::new(WaitCount::default());
        let ended = poll_fn(|cx| match waits.watch(|| call.as_mut().poll(cx)) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            // Several bodies may begin to wait in one poll.
            Poll::Pending if nth > 0 && waits.number() >= nth => Poll::Ready(None),
            Poll::Pending => {
                let is_late = limit.as_mut().poll(cx).is_ready();
                assert!(!is_late && waits.number() < WAITS_MAX, "{ENDLESS}");
                Poll::Pending
            }
        });
        let ended = ended.await;
        let is_lost = ended.is_none();
        let ended = match ended {
            Some(ended) => ended,
            None => {
                // No lease is longer.
                advance(TTL_MAX * 2).await;
                timeout(LONGEST, call).await.expect(ENDLESS)
            }
        };
        if !check(ended).await {
            return LossReport { awaits: waits.number().max(nth), failed_at: Some(nth) };
        }
        assert!(waits.is_begun(), "{NO_BODY}");
        assert!(waits.number() > 0, "{NO_WAIT}");
        if nth > 0 && !is_lost {
            return LossReport { awaits: waits.number(), failed_at: None };
        }
        nth += 1;
    }
}
