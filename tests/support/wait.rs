//! Waiting for an event with a bound, never for a guessed time.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use lockmacro_runtime::LockGuard;
use tokio::time::{MissedTickBehavior, timeout};

use crate::times::LONG_TTL;

/// Asks again and again until `condition` holds; panics with `claim` when it does not in time.
/// Where a machine needs long to ask, that time counts only in part: what is waited for needs the
/// machine, too.
pub async fn eventually<C, F>(claim: &str, within: Duration, mut condition: C)
where
    C: FnMut() -> F,
    F: Future<Output = bool>,
{
    const LONGEST: Duration = Duration::from_millis(25);
    let (start, mut counted) = (Instant::now(), Duration::ZERO);
    loop {
        let asked = Instant::now();
        if condition().await {
            return;
        }
        let waited = start.elapsed();
        assert!(counted < within && waited < 8 * within, "not within {waited:?}: {claim}");
        tokio::time::sleep(Duration::from_millis(3)).await;
        counted += asked.elapsed().min(LONGEST);
    }
}

/// Lasts until the lock of the body that calls it is lost.
pub async fn until_lost() {
    let lock = LockGuard::current().expect("a body");
    timeout(LONG_TTL, lock.lost()).await.expect("the lock is lost");
}

/// The same without an await.
pub fn block_until_lost() {
    let (lock, start) = (LockGuard::current().expect("a body"), Instant::now());
    while lock.is_held() {
        assert!(start.elapsed() < LONG_TTL, "the lock is lost");
        std::thread::sleep(lock.remaining());
    }
}

/// Gives up on a test that hangs.
pub async fn in_time<F: Future>(test: F) -> F::Output {
    let limit = Duration::from_secs(600);
    tokio::time::timeout(limit, test).await.expect("a test that hangs is a test that fails")
}

/// Returns the output of `work`, and whether its task was stalled for longer than `margin` just
/// before, as on a machine without time for it. The task is polled each millisecond, and the work
/// when it is woken, so that one that waits for nothing is not helped by it.
pub async fn watched<F: Future>(margin: Duration, work: F) -> (F::Output, bool) {
    const BEAT: Duration = Duration::from_millis(1);
    let (mut work, mut beats) = (pin!(work), tokio::time::interval(BEAT));
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut last, mut stalled, mut woken) = (Instant::now(), None::<Instant>, None);
    poll_fn(move |cx| {
        let now = Instant::now();
        if now - last > margin {
            stalled = Some(now);
        }
        last = now;
        while beats.poll_tick(cx).is_ready() {}
        let new = || Arc::new(Woken { is: AtomicBool::new(true), task: cx.waker().clone() });
        let woken = woken.get_or_insert_with(new);
        if !woken.is.swap(false, SeqCst) {
            return Poll::Pending;
        }
        let waker = Waker::from(Arc::clone(woken));
        let done = work.as_mut().poll(&mut Context::from_waker(&waker));
        done.map(|done| (done, stalled.is_some_and(|until| until.elapsed() < margin)))
    })
    .await
}

/// Whether a part of a task was woken.
struct Woken {
    is: AtomicBool,
    task: Waker,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.is.store(true, SeqCst);
        self.task.wake_by_ref();
    }
}

/// Runs `work` on a thread that knows of no runtime, without blocking this one.
pub async fn on_a_plain_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (answer, received) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || answer.send(work()));
    received.await.expect("the work on the thread did not panic")
}
