//! Cleanup: the background task that releases dropped locks.
//!
//! Every dropped lock is tried once before any is tried again. So a first release is delayed
//! neither by a server without an answer nor by further releases of other locks.

use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::Notify;
use tokio::time::{Sleep, sleep_until, timeout};

#[cfg(feature = "defer")]
use crate::engine::cleanup_queue::LONGEST_PAUSE;
use crate::engine::cleanup_queue::{Added, CleanupQueue, Item, MAX_BYTES, SHUTDOWN_PAUSE};
use crate::engine::cleanup_retry::next_release;
use crate::engine::in_flight::InFlightGuard;
use crate::protocol::answer::Released;
use crate::protocol::request::Request;
use crate::store::abandoned::AbandonedTokens;
use crate::store::dispatch::Store;
use crate::store::servers::Servers;
use crate::value::error::LockError;
use crate::value::task::JoinSet;
use crate::value::time::Instant;
use crate::value::unavailability::Unavailability;

/// Most first releases in flight, so that a server that is available again is not flooded.
const MAX_IN_FLIGHT: usize = 256;
/// Most further releases in flight.
const MAX_RETRIES_IN_FLIGHT: usize = 64;

/// The dropped locks of a manager, and the task that releases them.
#[derive(Debug)]
pub(crate) struct Cleanup {
    queue: CleanupQueue,
    /// The queue has changed.
    changed: Notify,
}

impl Default for Cleanup {
    fn default() -> Self {
        Self::over(CleanupQueue::new(MAX_BYTES))
    }
}

impl Cleanup {
    fn over(queue: CleanupQueue) -> Self {
        Self { queue, changed: Notify::new() }
    }

    /// Queues a dropped lock, see [`CleanupQueue::add`].
    pub(crate) fn add(&self, request: Arc<Request>, guard: InFlightGuard) -> Added {
        let added = self.queue.add(request, guard);
        if matches!(added, Added::Queued | Added::StartTask) {
            self.changed.notify_one();
        }
        added
    }

    /// The manager was shut down, and no lock is held. Each lock that was released before is
    /// released one last time. The task ends within three [`SHUTDOWN_PAUSE`]s.
    pub(crate) fn close(&self) {
        self.queue.close();
        self.changed.notify_one();
    }

    /// The task could not be started.
    pub(crate) fn not_started(&self) {
        self.queue.clear();
    }

    /// The task ended with its runtime, perhaps before it began.
    #[cfg(feature = "test-util")]
    pub(crate) fn task_is_gone(&self) {
        self.queue.task_ended();
    }

    /// Waits until every dropped lock was tried once, for a second at most.
    #[cfg(feature = "defer")]
    pub(crate) async fn tried_all(&self) {
        let _ = timeout(LONGEST_PAUSE, self.queue.tried_all()).await;
    }

    /// Releases the queued locks until the queue is empty.
    pub(crate) async fn work(self: Arc<Self>, store: Arc<Store>) {
        let (task_ended, servers) = (TaskEnded(&self.queue), store.servers());
        let (mut first, mut retries) = (JoinSet::new(), JoinSet::new());
        loop {
            while first.len() < MAX_IN_FLIGHT
                && let Some(mut item) = self.queue.next_untried()
            {
                // A later grant to the token of a waiter is noticed.
                let tokens = store.abandoned().filter(|_| item.request.until.is_some());
                item.abandoned = tokens.map(|all| all.abandon(item.request.token.bits()));
                first.spawn(release(Arc::clone(&store), item));
            }
            self.queue.drop_released_after_shutdown();
            while retries.len() < MAX_RETRIES_IN_FLIGHT
                && let Some(item) = self.queue.next_retry(|request| servers.is_lost(request))
            {
                retries.spawn(release(Arc::clone(&store), item));
            }
            let due = match retries.len() < MAX_RETRIES_IN_FLIGHT {
                true => self.queue.next_due(),
                false => None,
            };
            if first.is_empty() && retries.is_empty() && due.is_none() && self.queue.is_over() {
                // Another task may have been started already.
                return mem::forget(task_ended);
            }
            let granted = store.abandoned().map(AbandonedTokens::granted);
            if let Some(tried) = self.next_tried(&mut first, &mut retries, due, granted).await {
                self.tried(servers, tried);
            }
        }
    }

    /// Waits for the next answer; `None` when the queue has changed or a lock is due.
    async fn next_tried(
        &self,
        first: &mut JoinSet<Tried>,
        retries: &mut JoinSet<Tried>,
        due: Option<Instant>,
        granted: Option<impl Future<Output = ()>>,
    ) -> Option<Tried> {
        let mut changed = pin!(self.changed.notified());
        let mut granted = pin!(granted);
        let mut due = pin!(due.map(sleep_until));
        poll_fn(|cx| {
            for tries in [&mut *first, &mut *retries] {
                if let Poll::Ready(Some(tried)) = tries.poll_join_next(cx) {
                    return Poll::Ready(tried.ok());
                }
            }
            let is_due = |due: Pin<&mut Sleep>| due.poll(cx).is_ready();
            let is_due = due.as_mut().as_pin_mut().is_some_and(is_due);
            if granted.as_mut().as_pin_mut().is_some_and(|granted| granted.poll(cx).is_ready()) {
                self.queue.hasten_granted();
                return Poll::Ready(None);
            }
            if is_due || changed.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            Poll::Pending
        })
        .await
    }

    /// Queues a lock again after a release, unless that was the last one.
    fn tried(&self, servers: &dyn Servers, (mut item, released): Tried) {
        item.untried = None;
        if item.is_last {
            return;
        }
        if let Some(pause) = next_release(servers, &mut item, &released) {
            self.queue.retry_after(item, pause);
        }
    }
}

/// Lets the task be started again when its runtime has dropped it.
struct TaskEnded<'a>(&'a CleanupQueue);

impl Drop for TaskEnded<'_> {
    fn drop(&mut self) {
        self.0.task_ended();
    }
}

/// A lock, and the answer to its release.
type Tried = (Item, Result<Released, LockError>);

async fn release(store: Arc<Store>, mut item: Item) -> Tried {
    item.times = item.times.saturating_add(1);
    let release = store.release(&item.request);
    let released = match item.guard {
        Some(_) => release.await,
        // It was released before, and the end of the thread may wait for this.
        None => timeout(SHUTDOWN_PAUSE, release).await.unwrap_or_else(|_| Err(unanswered())),
    };
    (item, released)
}

/// Decides the next pause only: a release that is repeated is not logged.
fn unanswered() -> LockError {
    LockError::unavailable_at(None, Unavailability::Timeout, "released again, and not answered")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{advance, sleep};

    use super::*;
    use crate::engine::cleanup_retry::{LAST_PAUSE, MAX_RELEASES};
    use crate::engine::in_flight::InFlight;
    use crate::store::memory::Memory;
    use crate::store::redis::store::Redis;
    use crate::value::applied::Applied;
    use crate::value::token::Token;

    const HOUR: Duration = Duration::from_secs(60 * 60);
    const SHORT: Duration = Duration::from_secs(2);

    /// A request that may still be in flight.
    fn request(key: impl ToString) -> Arc<Request> {
        request_for(HOUR, key)
    }

    fn request_for(ttl: Duration, key: impl ToString) -> Arc<Request> {
        let token = Token::new("test", "", "").unwrap();
        Arc::new(Request::new(key.to_string().into(), token, ttl))
    }

    fn is_left(added: Added) -> bool {
        matches!(added, Added::Full | Added::FirstFull)
    }

    fn memory() -> (Memory, Arc<Store>) {
        let memory = Memory::new();
        (memory.clone(), Arc::new(Store::Memory(memory)))
    }

    fn at(url: &str, timeout: Duration) -> Arc<Store> {
        Arc::new(Store::Redis(Arc::new(Redis::at(url, timeout))))
    }

    /// A server that does not exist.
    fn unreachable() -> Arc<Store> {
        at("redis://127.0.0.1:1", Duration::from_millis(20))
    }

    async fn until(done: impl Fn() -> bool) {
        let start = std::time::Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(60), "not in time");
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// A cleanup with its task.
    struct Running {
        cleanup: Arc<Cleanup>,
        in_flight: InFlight,
        store: Arc<Store>,
        tasks: JoinSet<()>,
    }

    impl Running {
        fn with(queue: CleanupQueue, store: &Arc<Store>) -> Self {
            let (cleanup, in_flight) = (Arc::new(Cleanup::over(queue)), InFlight::default());
            Self { cleanup, in_flight, store: Arc::clone(store), tasks: JoinSet::new() }
        }

        fn add(&mut self, request: &Arc<Request>) -> Added {
            let added = self.cleanup.add(Arc::clone(request), self.in_flight.join());
            if added == Added::StartTask {
                let (cleanup, store) = (Arc::clone(&self.cleanup), Arc::clone(&self.store));
                self.tasks.spawn(cleanup.work(store));
            }
            added
        }

        fn used_bytes(&self) -> usize {
            self.cleanup.queue.used_bytes()
        }

        async fn ends(mut self) {
            while self.tasks.join_next().await.is_some() {}
            assert_eq!((self.used_bytes(), self.in_flight.count()), (0, 0));
        }
    }

    fn unbounded() -> CleanupQueue {
        CleanupQueue::new(MAX_BYTES)
    }

    /// A queue with room for this number of locks with keys of one byte.
    fn room_for(items: usize) -> CleanupQueue {
        CleanupQueue::with_room_for(items, &request("x"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_lock_makes_room_for_a_new_one() {
        let (memory, store) = memory();
        let mut running = Running::with(room_for(2), &store);
        for nth in 0..9 {
            assert!(!is_left(running.add(&request(nth))));
            running.in_flight.empty().await;
        }
        let held = request(0);
        memory.acquire(&held).unwrap();
        running.add(&held);
        running.in_flight.empty().await;
        assert!(memory.holds_nothing());
        // Of the locks to be released again the oldest were dropped.
        let kept = running.cleanup.queue.retries();
        assert!(kept.len() <= 2 && kept.iter().all(|(number, _)| *number > 8), "{kept:?}");
        running.ends().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_request_is_released_and_then_nothing_is_kept() {
        let (memory, store) = memory();
        let mut running = Running::with(unbounded(), &store);
        let late = request(0);
        for after in [Duration::ZERO, Duration::from_millis(500), LAST_PAUSE * 3 / 4] {
            running.add(&late);
            running.in_flight.empty().await;
            advance(after).await;
            memory.acquire(&late).unwrap();
            until(|| memory.holds_nothing()).await;
        }
        running.ends().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_is_released_three_times_at_most() {
        let (memory, store) = memory();
        let mut running = Running::with(unbounded(), &store);
        let start = Instant::now();
        running.add(&request(0));
        loop {
            let retries = running.cleanup.queue.retries();
            if retries.is_empty() && running.in_flight.count() == 0 {
                break;
            }
            assert!(retries.iter().all(|(_, times)| *times < MAX_RELEASES), "{retries:?}");
            sleep(Duration::from_millis(1)).await;
        }
        assert!(start.elapsed() < LAST_PAUSE * 2, "the cleanup does not wait for the ttl");
        assert!(memory.holds_nothing());
        running.ends().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_without_an_answer_ends_soon_after_a_shutdown() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", silent.local_addr().unwrap());
        let mut running = Running::with(unbounded(), &at(&url, HOUR / 2));
        running.add(&request(0));
        // It was released before.
        let mut item = running.cleanup.queue.next_untried().unwrap();
        (item.guard, item.untried) = (None, None);
        running.cleanup.queue.retry_after(item, Duration::ZERO);
        sleep(Duration::from_millis(10)).await;
        let start = Instant::now();
        running.cleanup.close();
        running.ends().await;
        assert!(start.elapsed() <= SHUTDOWN_PAUSE * 3, "{:?}", start.elapsed());
    }

    #[tokio::test]
    async fn an_unreachable_server_delays_no_other_release() {
        let (memory, store) = memory();
        let mut running = Running::with(room_for(3), &unreachable());
        // Each has its first try, and none is tried for longer than its lease.
        for nth in 0..3 {
            assert!(!is_left(running.add(&request_for(SHORT, nth))));
        }
        let mut others = Running::with(room_for(3), &store);
        let held = request(0);
        held.set_applied(Applied::Yes);
        memory.acquire(&held).unwrap();
        others.add(&held);
        until(|| memory.holds_nothing()).await;
        others.ends().await;
        running.ends().await;
    }

    #[tokio::test]
    async fn the_queue_takes_sixteen_megabytes_and_the_newest_locks_are_left() {
        let mut running = Running::with(unbounded(), &unreachable());
        let long = "x".repeat(1_000);
        let request = |nth| request_for(SHORT, format!("{nth}{long}"));
        let requests: Vec<_> = (0..40_000).map(request).collect();
        let added: Vec<_> = requests.iter().map(|request| running.add(request)).collect();
        assert!(running.used_bytes() <= MAX_BYTES, "{}", running.used_bytes());
        let kept = added.iter().position(|added| *added == Added::FirstFull).expect("too many");
        assert!(kept > 8_000, "{kept} have room");
        assert!(added[kept..].iter().all(|added| is_left(*added)), "the newest are left");
        assert_eq!(running.cleanup.queue.left(), (40_000 - kept) as u64, "they are counted");
        assert_eq!(running.in_flight.count(), kept, "a shutdown does not wait for them");
        running.ends().await;
    }
}
