//! Work that many callers wait for, done once by a task of its own. A caller that is dropped, or
//! that nobody polls any more, holds up nobody else; nor does a runtime that is blocked.

use crate::value::sync::Mutex;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

/// The task of the work shows that its runtime runs: that often in the time for the work.
const BEATS: u32 = 40;
/// A task that has shown nothing for so many beats is on a blocked runtime.
const BEATS_MISSED_MAX: u32 = 5;

pub(crate) struct SingleFlight<T> {
    /// For how long the work may take.
    limit: Duration,
    in_flight: Mutex<Option<InFlight<T>>>,
}

#[derive(Clone)]
struct InFlight<T> {
    until: Instant,
    progress: watch::Receiver<Progress<T>>,
}

/// What the task of the work shows.
struct Progress<T> {
    beat: Instant,
    /// `Some(None)` when the work took too long.
    result: Option<Option<T>>,
}

impl<T> InFlight<T> {
    /// Until when the work is waited for, as far as is known now.
    fn trusted_until(&self, limit: Duration) -> Instant {
        self.until.min(self.progress.borrow().beat + limit / BEATS * BEATS_MISSED_MAX)
    }
}

impl<T: Clone + Send + Sync + 'static> SingleFlight<T> {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, in_flight: Mutex::new(None) }
    }

    /// Waits for what comes of the work, which is started unless it is under way; it is started
    /// again when it is another runtime's, which is blocked or has ended. `None` when it took too
    /// long.
    pub(crate) async fn run<W>(&self, mut work: impl FnMut() -> W, until: Instant) -> Option<T>
    where
        W: Future<Output = T> + Send + 'static,
    {
        loop {
            let (mut joined, ours) = self.join(&mut work);
            loop {
                let waits_until =
                    if ours { joined.until } else { joined.trusted_until(self.limit) };
                let over = joined.progress.wait_for(|progress| progress.result.is_some());
                let over = timeout_at(until.min(waits_until), over).await;
                match over.map(|over| over.map(|progress| progress.result.clone())) {
                    Ok(Ok(result)) => return result.flatten(),
                    _ if ours || Instant::now() >= until => return None,
                    // Its runtime has ended.
                    Ok(Err(_)) => break,
                    Err(_) if Instant::now() < joined.trusted_until(self.limit) => {}
                    Err(_) => break,
                }
            }
        }
    }

    /// Has the work done, unless it is under way, and does not wait for it.
    pub(crate) fn begin<W>(&self, work: impl FnOnce() -> W)
    where
        W: Future<Output = T> + Send + 'static,
    {
        drop(self.join(work));
    }

    /// Keeps no longer what came of the work, when it is over.
    pub(crate) fn forget(&self) {
        let mut in_flight = self.in_flight.lock();
        in_flight.take_if(|work| work.progress.has_changed().is_err());
    }

    /// The work that is under way, and whether it was started by this call.
    fn join<W>(&self, work: impl FnOnce() -> W) -> (InFlight<T>, bool)
    where
        W: Future<Output = T> + Send + 'static,
    {
        let mut in_flight = self.in_flight.lock();
        let now = Instant::now();
        if let Some(joined) = &*in_flight
            && now < joined.trusted_until(self.limit)
            && joined.progress.has_changed().is_ok()
        {
            return (joined.clone(), false);
        }
        let (shown, progress) = watch::channel(Progress { beat: now, result: None });
        tokio::spawn(show(work(), self.limit, shown));
        let started = InFlight { until: now + self.limit, progress };
        *in_flight = Some(started.clone());
        (started, true)
    }
}

/// Does the work, and shows meanwhile that it is not on a blocked runtime.
async fn show<T>(
    work: impl Future<Output = T>,
    limit: Duration,
    shown: watch::Sender<Progress<T>>,
) {
    let mut work = std::pin::pin!(timeout(limit, work));
    let result = loop {
        match timeout(limit / BEATS, &mut work).await {
            Ok(result) => break result.ok(),
            Err(_) => shown.send_modify(|progress| progress.beat = Instant::now()),
        }
    };
    shown.send_modify(|progress| progress.result = Some(result));
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
        // The task that had it done has gone, too.
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&result), 2);
        flight.forget();
        assert_eq!(Arc::strong_count(&result), 1);
        // Work that is under way is not given up for that.
        let mut first = Box::pin(flight.run(|| std::future::ready(Arc::default()), soon()));
        assert!(futures::poll!(&mut first).is_pending());
        flight.forget();
        let other = || std::future::ready(Arc::clone(&result));
        let second = flight.run(other, soon()).await;
        assert!(!Arc::ptr_eq(&second.unwrap(), &result), "it was done twice");
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

    /// A runtime that has begun the work and is then blocked, until what this returns is dropped.
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
                // Until the other end is gone.
                let _ = blocked.recv();
                // Its own work goes on then.
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
