//! Work that many callers wait for, done once by a task of its own. No caller delays the others:
//! neither one that is dropped, nor one that is not polled, nor one whose runtime is blocked.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{timeout, timeout_at};

use crate::value::sync::Mutex;
use crate::value::task::spawn;
use crate::value::time::Instant;

/// Heartbeats of the task within the time limit of the work; they show that its runtime is not
/// blocked.
const BEATS: u32 = 40;
/// Missed heartbeats after which the runtime of the task counts as blocked.
const BEATS_MISSED_MAX: u32 = 5;

pub(crate) struct SingleFlight<T> {
    /// Longest duration of the work.
    limit: Duration,
    in_flight: Mutex<Option<Flight<T>>>,
}

#[derive(Clone)]
struct Flight<T> {
    until: Instant,
    shown: Arc<Shown<T>>,
    task: AbortHandle,
}

/// What the task publishes. Callers that wait are woken in the order in which they came, as those
/// of a `watch` channel are not.
struct Shown<T> {
    progress: Mutex<Progress<T>>,
    over: Notify,
}

struct Progress<T> {
    beat: Instant,
    /// `Some(None)` when the work exceeded its limit.
    result: Option<Option<T>>,
    /// The task has ended, with a result or with its runtime.
    is_over: bool,
}

impl<T: Clone> Shown<T> {
    fn is_over(&self) -> bool {
        self.progress.lock().is_over
    }

    /// Waits for the end of the task. Returns its result, if it has one.
    async fn result(&self) -> Option<Option<T>> {
        loop {
            let mut over = pin!(self.over.notified());
            over.as_mut().enable();
            if self.is_over() {
                return self.progress.lock().result.clone();
            }
            over.await;
        }
    }
}

impl<T> Flight<T> {
    /// The time until which callers wait for the work, as far as is known now.
    fn trusted_until(&self, limit: Duration) -> Instant {
        self.until.min(self.shown.progress.lock().beat + limit / BEATS * BEATS_MISSED_MAX)
    }
}

impl<T: Clone + Send + Sync + 'static> SingleFlight<T> {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, in_flight: Mutex::new(None) }
    }

    /// Waits for the result of the work, and starts the work unless it is in flight. Starts it
    /// again if the runtime that does it is blocked or has ended. `None` when it takes too long.
    pub(crate) async fn run<W>(&self, mut work: impl FnMut() -> W, until: Instant) -> Option<T>
    where
        W: Future<Output = T> + Send + 'static,
    {
        loop {
            let (joined, ours) = self.join(&mut work);
            loop {
                let waits_until =
                    if ours { joined.until } else { joined.trusted_until(self.limit) };
                match timeout_at(until.min(waits_until), joined.shown.result()).await {
                    Ok(Some(result)) => return result,
                    _ if ours || Instant::now() >= until => return None,
                    // The runtime of the task has ended.
                    Ok(None) => break,
                    Err(_) if Instant::now() < joined.trusted_until(self.limit) => {}
                    Err(_) => break,
                }
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

    /// Drops the result of work that is done.
    pub(crate) fn forget(&self) {
        let mut in_flight = self.in_flight.lock();
        in_flight.take_if(|work| work.shown.is_over());
    }

    /// Ends the work in flight, or drops its result. The caller that started it gets `None`;
    /// another one that still waits starts it again.
    pub(crate) fn abort(&self) {
        if let Some(work) = self.in_flight.lock().take() {
            work.task.abort();
        }
    }

    /// The work in flight, and whether this call started it.
    fn join<W>(&self, work: impl FnOnce() -> W) -> (Flight<T>, bool)
    where
        W: Future<Output = T> + Send + 'static,
    {
        let mut in_flight = self.in_flight.lock();
        let now = Instant::now();
        if let Some(joined) = &*in_flight
            && now < joined.trusted_until(self.limit)
            && !joined.shown.is_over()
        {
            return (joined.clone(), false);
        }
        let progress = Progress { beat: now, result: None, is_over: false };
        let shown = Arc::new(Shown { progress: Mutex::new(progress), over: Notify::new() });
        let task = spawn(show(work(), self.limit, Over(Arc::clone(&shown)))).abort_handle();
        let started = Flight { until: now + self.limit, shown, task };
        *in_flight = Some(started.clone());
        (started, true)
    }
}

/// Reports the end of the task when it is dropped.
struct Over<T>(Arc<Shown<T>>);

impl<T> Drop for Over<T> {
    fn drop(&mut self) {
        self.0.progress.lock().is_over = true;
        self.0.over.notify_waiters();
    }
}

/// Does the work, with a heartbeat meanwhile.
async fn show<T>(work: impl Future<Output = T>, limit: Duration, over: Over<T>) {
    let progress = &over.0.progress;
    let mut work = std::pin::pin!(timeout(limit, work));
    let result = loop {
        match timeout(limit / BEATS, &mut work).await {
            Ok(result) => break result.ok(),
            Err(_) => progress.lock().beat = Instant::now(),
        }
    };
    progress.lock().result = Some(result);
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
        let (flight, times) = (SingleFlight::new(LIMIT), Arc::new(AtomicU32::new(0)));
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
    async fn a_result_is_kept_until_it_is_forgotten() {
        let (flight, result) = (SingleFlight::new(LIMIT), Arc::new(()));
        let mut kept = Some(Arc::clone(&result));
        let work = || std::future::ready(kept.take().unwrap_or_default());
        drop(flight.run(work, soon()).await);
        // The task drops its own copy.
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&result), 2);
        flight.forget();
        assert_eq!(Arc::strong_count(&result), 1);
        // Work in flight is not forgotten.
        let mut first = Box::pin(flight.run(|| std::future::ready(Arc::default()), soon()));
        assert!(futures::poll!(&mut first).is_pending());
        flight.forget();
        let other = || std::future::ready(Arc::clone(&result));
        let second = flight.run(other, soon()).await;
        assert!(!Arc::ptr_eq(&second.unwrap(), &result), "it was done twice");
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_is_aborted_ends_and_is_started_again_for_those_who_wait() {
        let (flight, kept) = (SingleFlight::new(LIMIT), Arc::new(()));
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
        let (flight, times) = (SingleFlight::new(LIMIT), Arc::new(AtomicU32::new(0)));
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
