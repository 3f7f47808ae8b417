//! Work that many callers wait for, done once by a task of its own. No caller delays the others:
//! neither one that is dropped, nor one that is not polled, nor one whose runtime is blocked.

use std::time::Duration;

use tokio::runtime;
use tokio::sync::broadcast;
use tokio::task::AbortHandle;
use tokio::time::{timeout, timeout_at};

use crate::sys::sync::Mutex;
use crate::sys::task::spawn;
use crate::sys::time::Instant;

/// The share of the limit for which callers wait for a task of another runtime, which may be
/// blocked.
const OTHER_RUNTIME: u32 = 8;

pub(crate) struct SingleFlight<T> {
    /// Longest duration of the work.
    limit: Duration,
    in_flight: Mutex<Option<Flight<T>>>,
}

struct Flight<T> {
    began: Instant,
    runtime: runtime::Id,
    task: AbortHandle,
    /// The task alone has the sender, so that a task without a result ends the channel. A `watch`
    /// channel would not wake the callers in the order in which they came.
    results: broadcast::WeakSender<Option<T>>,
}

/// A caller's part in the work in flight.
struct Joined<T> {
    result: broadcast::Receiver<Option<T>>,
    /// Until when the caller waits, where its own runtime does not do the work.
    until: Option<Instant>,
    /// Whether the caller has started the work.
    is_first: bool,
}

impl<T: Clone + Send + Sync + 'static> SingleFlight<T> {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, in_flight: Mutex::new(None) }
    }

    /// Waits for the result of the work, and starts the work unless it is in flight. Starts it
    /// again if the runtime that does it may be blocked, or has ended. `None` when it takes too
    /// long.
    pub(crate) async fn run<W>(&self, mut work: impl FnMut() -> W, until: Instant) -> Option<T>
    where
        W: Future<Output = T> + Send + 'static,
    {
        loop {
            let mut joined = self.join(&mut work);
            let waits_until = joined.until.map_or(until, |other| until.min(other));
            match timeout_at(waits_until, joined.result.recv()).await {
                Ok(Ok(result)) => return result,
                // It was aborted, and must not be begun again by whoever began it.
                Ok(Err(_)) if joined.is_first => return None,
                _ if Instant::now() >= until => return None,
                _ => {}
            }
        }
    }

    /// Starts the work unless it is in flight, and does not wait for it.
    pub(crate) fn begin<W>(&self, work: impl FnOnce() -> W)
    where
        W: Future<Output = T> + Send + 'static,
    {
        drop(self.join(work));
    }

    /// Ends the work in flight. The caller that started it gets `None`; another one that still
    /// waits starts it again.
    pub(crate) fn abort(&self) {
        if let Some(flight) = self.in_flight.lock().take() {
            flight.task.abort();
        }
    }

    /// Joins the work in flight, or starts it.
    fn join<W>(&self, work: impl FnOnce() -> W) -> Joined<T>
    where
        W: Future<Output = T> + Send + 'static,
    {
        let mut in_flight = self.in_flight.lock();
        let now = Instant::now();
        let runtime = runtime::Handle::current().id();
        if let Some(flight) = &*in_flight
            && let Some(results) = flight.results.upgrade()
        {
            // That runtime may be blocked, maybe by the very caller that waits here.
            let other = flight.began + self.limit / OTHER_RUNTIME;
            let until = (flight.runtime != runtime).then_some(other);
            if now < until.unwrap_or(flight.began + self.limit) {
                return Joined { result: results.subscribe(), until, is_first: false };
            }
        }
        let (sender, result) = broadcast::channel(1);
        let results = sender.downgrade();
        let task = spawn(publish(work(), self.limit, sender)).abort_handle();
        *in_flight = Some(Flight { began: now, runtime, task, results });
        Joined { result, until: None, is_first: true }
    }
}

/// Does the work. The result is `None` when the work exceeds its limit.
async fn publish<T>(
    work: impl Future<Output = T>,
    limit: Duration,
    results: broadcast::Sender<Option<T>>,
) {
    // Fails only when nobody waits any more.
    let _ = results.send(timeout(limit, work).await.ok());
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    fn soon() -> Instant {
        Instant::now() + LIMIT * 2
    }

    #[tokio::test(start_paused = true)]
    async fn work_of_many_callers_is_done_once() {
        let flight = SingleFlight::new(LIMIT);
        let times = Arc::new(AtomicU32::new(0));
        let work = || {
            let times = Arc::clone(&times);
            async move {
                tokio::time::sleep(LIMIT / 2).await;
                times.fetch_add(1, Ordering::Relaxed)
            }
        };
        let callers = (0..10).map(|_| flight.run(work, soon()));
        assert_eq!(futures::future::join_all(callers).await, [Some(0); 10]);
        assert_eq!(flight.run(work, soon()).await, Some(1), "it is over, and done again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_is_not_polled_delays_no_other() {
        let flight = SingleFlight::new(LIMIT);
        let mut first = Box::pin(flight.run(|| async { 7 }, soon()));
        assert!(futures::poll!(&mut first).is_pending());
        assert_eq!(flight.run(|| async { 8 }, soon()).await, Some(7));
        assert_eq!(first.await, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_never_ends_is_abandoned() {
        let flight = SingleFlight::<u32>::new(LIMIT);
        assert_eq!(flight.run(pending, soon()).await, None);
        assert_eq!(flight.run(|| async { 7 }, soon()).await, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_is_not_kept() {
        let flight = SingleFlight::new(LIMIT);
        let result = Arc::new(());
        drop(flight.run(|| std::future::ready(Arc::clone(&result)), soon()).await);
        // The task drops its own copy.
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&result), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_is_aborted_ends_and_is_started_again_for_those_who_wait() {
        let flight = SingleFlight::new(LIMIT);
        let kept = Arc::new(());
        let stuck = || {
            let kept = Arc::clone(&kept);
            async move {
                pending::<()>().await;
                drop(kept);
                7
            }
        };
        flight.begin(stuck);
        let mut waits = Box::pin(flight.run(|| async { 8 }, soon()));
        assert!(futures::poll!(&mut waits).is_pending());
        flight.abort();
        assert_eq!(waits.await, Some(8));
        assert_eq!(Arc::strong_count(&kept), 1);
    }

    #[test]
    fn work_on_a_runtime_that_has_ended_is_started_again() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build();
        let flight = SingleFlight::new(LIMIT);
        runtime().unwrap().block_on(async {
            let mut first = Box::pin(flight.run(pending, soon()));
            assert!(futures::poll!(&mut first).is_pending());
        });
        let done = runtime().unwrap().block_on(flight.run(|| async { 7 }, soon()));
        assert_eq!(done, Some(7));
    }

    /// Starts the work on a runtime that is then blocked, until the returned sender is dropped.
    fn blocked_in(flight: &Arc<SingleFlight<u32>>) -> std::sync::mpsc::Sender<()> {
        let (free, blocked) = std::sync::mpsc::channel::<()>();
        let (began, begun) = std::sync::mpsc::channel();
        let flight = Arc::clone(flight);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            runtime.unwrap().block_on(async {
                let mut first = Box::pin(flight.run(|| async { 7 }, soon()));
                assert!(futures::poll!(&mut first).is_pending());
                began.send(()).unwrap();
                // Returns when the sender is dropped.
                let _ = blocked.recv();
                // Its own work continues then.
                assert_eq!(first.await, Some(7));
            });
        });
        begun.recv().unwrap();
        free
    }

    #[tokio::test]
    async fn a_blocked_runtime_that_has_begun_the_work_delays_no_caller() {
        let limit = Duration::from_secs(20);
        let flight = Arc::new(SingleFlight::new(limit));
        let _blocked = blocked_in(&flight);
        let start = Instant::now();
        let times = Arc::new(AtomicU32::new(0));
        let work = || {
            let times = Arc::clone(&times);
            async move { times.fetch_add(1, Ordering::Relaxed) }
        };
        let callers = (0..10).map(|_| flight.run(work, start + 20 * limit));
        assert_eq!(futures::future::join_all(callers).await, [Some(0); 10], "it is done once");
        assert!(start.elapsed() < limit, "after {:?}", start.elapsed());
    }

    #[tokio::test]
    async fn a_caller_waits_for_a_blocked_runtime_until_its_deadline() {
        let flight = Arc::new(SingleFlight::new(Duration::from_secs(60)));
        let _blocked = blocked_in(&flight);
        let start = Instant::now();
        let until = start + Duration::from_millis(20);
        assert_eq!(flight.run(|| async { 8 }, until).await, None);
        assert!(start.elapsed() < Duration::from_secs(30), "after {:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_work_on_a_runtime_that_runs_is_begun_once() {
        let flight = SingleFlight::new(LIMIT);
        let times = Arc::new(AtomicU32::new(0));
        let work = || {
            let times = Arc::clone(&times);
            async move {
                tokio::time::sleep(LIMIT - LIMIT / 10).await;
                times.fetch_add(1, Ordering::Relaxed)
            }
        };
        let (one, two) = tokio::join!(flight.run(work, soon()), flight.run(work, soon()));
        assert_eq!((one, two), (Some(0), Some(0)));
    }
}
