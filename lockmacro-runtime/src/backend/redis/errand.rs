//! Work that many callers wait for, done once by a task of its own. A caller that is dropped, or
//! that nobody polls any more, holds up nobody else.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

pub(super) struct Errand<T> {
    /// For how long the work may take.
    limit: Duration,
    under_way: Mutex<Option<UnderWay<T>>>,
}

struct UnderWay<T> {
    until: Instant,
    result: watch::Receiver<Option<T>>,
}

impl<T: Clone + Send + Sync + 'static> Errand<T> {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, under_way: Mutex::new(None) }
    }

    /// Waits for what comes of the work, which is started unless it is under way. `None` when it
    /// took too long, or its runtime has ended.
    pub(super) async fn done<W>(&self, work: impl FnOnce() -> W, until: Instant) -> Option<T>
    where
        W: Future<Output = T> + Send + 'static,
    {
        let mut result = self.join(work);
        let result = timeout_at(until, result.wait_for(Option::is_some)).await.ok()?.ok()?;
        result.clone()
    }

    /// Has the work done, unless it is under way, and does not wait for it.
    pub(super) fn begin<W>(&self, work: impl FnOnce() -> W)
    where
        W: Future<Output = T> + Send + 'static,
    {
        drop(self.join(work));
    }

    /// Keeps no longer what came of the work, when it is over.
    pub(super) fn forget(&self) {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.take_if(|work| work.result.has_changed().is_err());
    }

    fn join<W>(&self, work: impl FnOnce() -> W) -> watch::Receiver<Option<T>>
    where
        W: Future<Output = T> + Send + 'static,
    {
        // Nothing that runs under this mutex can panic.
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is overdue is on a runtime that stands still.
        if let Some(UnderWay { until, result }) = &*under_way
            && Instant::now() < *until
            && result.has_changed().is_ok()
        {
            return result.clone();
        }
        let (done, result) = watch::channel(None);
        let work = timeout(self.limit, work());
        tokio::spawn(async move { done.send_replace(work.await.ok()) });
        let until = Instant::now() + self.limit;
        *under_way = Some(UnderWay { until, result: result.clone() });
        result
    }
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
    async fn many_callers_have_it_done_once() {
        let (errand, times) = (Errand::new(LIMIT), Arc::new(AtomicU32::new(0)));
        let work = || {
            let times = Arc::clone(&times);
            async move {
                tokio::time::sleep(LIMIT / 2).await;
                times.fetch_add(1, Ordering::Relaxed)
            }
        };
        let callers = (0..10).map(|_| errand.done(work, soon()));
        assert_eq!(futures::future::join_all(callers).await, [Some(0); 10]);
        assert_eq!(errand.done(work, soon()).await, Some(1), "it is over, and done again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_is_not_polled_holds_up_nobody() {
        let errand = Errand::new(LIMIT);
        let mut first = Box::pin(errand.done(|| async { 7 }, soon()));
        assert!(futures::poll!(&mut first).is_pending());
        assert_eq!(errand.done(|| async { 8 }, soon()).await, Some(7));
        assert_eq!(first.await, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn work_without_an_end_is_given_up() {
        let errand = Errand::<u32>::new(LIMIT);
        assert_eq!(errand.done(pending, soon()).await, None);
        assert_eq!(errand.done(|| async { 7 }, soon()).await, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn what_came_of_it_is_kept_until_it_is_to_be_forgotten_and_no_longer() {
        let (errand, result) = (Errand::new(LIMIT), Arc::new(()));
        let kept = Arc::clone(&result);
        drop(errand.done(|| async move { kept }, soon()).await);
        // The task that had it done has gone, too.
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&result), 2);
        errand.forget();
        assert_eq!(Arc::strong_count(&result), 1);
        // Work that is under way is not given up for that.
        let mut first = Box::pin(errand.done(|| async { Arc::default() }, soon()));
        assert!(futures::poll!(&mut first).is_pending());
        errand.forget();
        let other = Arc::clone(&result);
        let second = errand.done(|| async move { other }, soon()).await;
        assert!(!Arc::ptr_eq(&second.unwrap(), &result), "it was done twice");
    }

    #[test]
    fn work_on_a_runtime_that_has_ended_is_started_again() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build();
        let errand = Errand::new(LIMIT);
        runtime().unwrap().block_on(async {
            let mut first = Box::pin(errand.done(pending, soon()));
            assert!(futures::poll!(&mut first).is_pending());
        });
        let done = runtime().unwrap().block_on(errand.done(|| async { 7 }, soon()));
        assert_eq!(done, Some(7));
    }
}
