//! Cleanup: releases dropped locks until that is answered, each by a task of the background thread.
//!
//! First releases have permits of their own, so that none of them waits for further releases of
//! other locks. Up to 256 of them may be without an answer before another one waits.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep_until, timeout};

use crate::engine::token::in_flight::{InFlight, InFlightGuard};
use crate::protocol::answer::Released;
use crate::protocol::request::Request;
use crate::store::handle::Store;
use crate::store::subscriptions::AbandonedToken;
use crate::sys::backoff::{Backoff, jittered};
use crate::sys::random::HashMap;
use crate::sys::sync::{Mutex, until};
use crate::sys::time::{Instant, Moment};
use crate::value::error::{LockError, UnavailableReason};

/// Most first releases in flight, so that a server that is available again is not flooded.
const FIRST_IN_FLIGHT: usize = 256;
/// Most further releases in flight.
const FURTHER_IN_FLIGHT: usize = 64;
/// Most dropped locks at a time. Further ones are left to their ttl.
const MAX_LOCKS: usize = 16_384;
/// How long after a shutdown a lock that was released before is released once more, and the timeout
/// of each release but the first.
const SHUTDOWN_PAUSE: Duration = Duration::from_millis(2_500);
/// How long after the end of its manager a lock is tried.
const LAST_TRIES: Duration = Duration::from_secs(25);

/// The first and the longest pause between two tries of a release that failed. A server that is
/// down is probed as often as the latter.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Length of a pause in percent of the pause before.
const GROWTH: u32 = 300;
/// Pause before the last release of a lock, and between those that are denied. A request that was
/// not written within the manager's timeout (2 s by default) is not sent any more.
const LAST_PAUSE: Duration = Duration::from_secs(6);
/// Most releases of one lock, beside those that fail only for a while. A server that is down gets
/// one release a second for all of its locks.
const MAX_RELEASES: u8 = 3;

/// Tries that a shutdown waits for while a node of a Redlock may have a token: the first may end
/// when the other nodes have answered.
const DOUBTFUL_TRIES: u8 = 2;

/// The dropped locks of a manager.
#[derive(Debug)]
pub(crate) struct Cleanup {
    max_locks: usize,
    locks: Arc<InFlight>,
    first: Semaphore,
    further: Semaphore,
    /// The time of the last release at each server that is down.
    probed: Mutex<HashMap<Option<Box<str>>, Instant>>,
    /// Number of locks that were left to their ttl.
    left: AtomicUsize,
    /// When the manager ended, and the signal of that, which wakes in a fixed order.
    closed: Mutex<Option<Instant>>,
    closes: Notify,
}

impl Default for Cleanup {
    fn default() -> Self {
        Self {
            max_locks: MAX_LOCKS,
            locks: Arc::default(),
            first: Semaphore::new(FIRST_IN_FLIGHT),
            further: Semaphore::new(FURTHER_IN_FLIGHT),
            probed: Mutex::default(),
            left: AtomicUsize::new(0),
            closed: Mutex::default(),
            closes: Notify::new(),
        }
    }
}

impl Cleanup {
    /// Takes a dropped lock in, to be [released](DroppedLock::release); `None` when there are too
    /// many. `guard` is dropped when the lock was released.
    pub(crate) fn take(
        self: &Arc<Self>,
        request: Request,
        guard: InFlightGuard,
    ) -> Option<DroppedLock> {
        if self.locks.count() >= self.max_locks {
            if self.left.fetch_add(1, Ordering::Relaxed) == 0 {
                let key = request.ask.listed();
                tracing::warn!(%key, "too many dropped locks: this one and more end by ttl");
            }
            return None;
        }
        Some(DroppedLock {
            cleanup: Arc::clone(self),
            end: Instant::now() + request.lasts(Moment::now()),
            request,
            guard: Some(guard),
            is_first: true,
            times: 0,
            pauses: Backoff::growing(FIRST_PAUSE, LONGEST_PAUSE, GROWTH),
            counted: self.locks.join(),
        })
    }

    /// The manager was shut down or dropped: within a few seconds, each lock that was released
    /// before is released one last time. A lock that was not is tried for 25 s.
    pub(crate) fn close(&self) {
        *self.closed.lock() = Some(Instant::now());
        self.closes.notify_waiters();
    }

    /// Whether a lock at a server that is down may be released now: one a second is, as a probe for
    /// all.
    fn may_probe(&self, server: Option<Box<str>>) -> bool {
        let mut probed = self.probed.lock();
        let now = Instant::now();
        let may = probed.get(&server).is_none_or(|last| now - *last >= LONGEST_PAUSE);
        if may {
            probed.insert(server, now);
        }
        may
    }

    /// Waits until the manager has ended for [`LAST_TRIES`].
    async fn over(&self) {
        let closed = until(&self.closes, || *self.closed.lock()).await;
        sleep_until(closed + LAST_TRIES).await;
    }
}

/// A dropped lock, until it is released or its lease is over.
#[derive(Debug)]
pub(crate) struct DroppedLock {
    cleanup: Arc<Cleanup>,
    request: Request,
    /// Counts the lock as in flight, until it was released.
    guard: Option<InFlightGuard>,
    /// The first release is not over.
    is_first: bool,
    /// End of its lease, or of its time in the queue.
    end: Instant,
    /// Number of releases.
    times: u8,
    pauses: Backoff,
    /// Counts it among the dropped locks.
    counted: InFlightGuard,
}

impl DroppedLock {
    /// Releases the lock until that is answered, its lease is over, or its manager has ended for a
    /// while.
    pub(crate) async fn release(mut self, store: Store) {
        let cleanup = Arc::clone(&self.cleanup);
        select(pin!(self.retry_release(&store)), pin!(cleanup.over())).await;
        if self.guard.is_some() {
            cleanup.left.fetch_add(1, Ordering::Relaxed);
        }
        drop(self.counted);
        if cleanup.locks.count() == 0 {
            let left = cleanup.left.swap(0, Ordering::Relaxed);
            if left > 0 {
                tracing::info!(left, "dropped locks were not released: they end with their ttl");
            }
        }
    }

    async fn retry_release(&mut self, store: &Store) {
        // A later grant to the token of a waiter is noticed.
        let bits = self.request.token.secret.bits();
        let subscriptions =
            store.backend.subscriptions().filter(|_| self.request.token.was_queued());
        let abandoned = subscriptions.map(|all| all.abandon(bits));
        loop {
            let released = self.try_once(store).await;
            self.is_first = false;
            let Some(pause) = self.next(store, &released) else { return };
            // Where there is no room, those that were released twice are the first to go: a late
            // request for them is the least likely.
            let is_crowded = self.cleanup.locks.count() > self.cleanup.max_locks / 2;
            let is_first_to_go = self.guard.is_none() && self.times >= 2;
            if is_crowded && is_first_to_go || !self.is_due(store, pause, &abandoned).await {
                return;
            }
        }
    }

    async fn try_once(&mut self, store: &Store) -> Result<Released, LockError> {
        let permits = if self.is_first { &self.cleanup.first } else { &self.cleanup.further };
        // Never closed.
        let _permit = permits.acquire().await;
        self.times = self.times.saturating_add(1);
        let release = store.release(&self.request);
        if self.guard.is_some() && self.cleanup.closed.lock().is_none() {
            release.await
        } else {
            // The end of the thread may wait for this.
            timeout(SHUTDOWN_PAUSE, release).await.unwrap_or_else(|_| Err(unanswered()))
        }
    }

    /// The pause before the next release; `None` when there is none. A lock that was released no
    /// longer counts as in flight.
    fn next(&mut self, store: &Store, released: &Result<Released, LockError>) -> Option<Duration> {
        // A node of a Redlock may have a token, and may be back soon.
        let is_doubtful = self.request.token.is_doubtful();
        if released.is_ok() && !is_doubtful {
            self.guard = None;
        }
        let error = match released {
            Ok(_) if self.request.token.applied().is_known() => return None,
            Ok(_) if is_doubtful => {
                if self.times >= DOUBTFUL_TRIES {
                    self.guard = None;
                }
                if self.guard.is_none() {
                    // Not counted: a request on its way to the node may still arrive.
                    self.times = 0;
                }
                return Some(self.pauses.step());
            }
            // The abandoned request may still be in flight, in a network that was cut for a while.
            Ok(_) if self.times >= MAX_RELEASES => return None,
            Ok(_) if self.times + 1 == MAX_RELEASES => return Some(LAST_PAUSE),
            Ok(_) => return Some(self.pauses.step()),
            Err(error) => error,
        };
        let several = store.facts.are_several;
        let is_down = store.backend.health(&self.request).is_down;
        // An outage may end before the server counts as down. A lock that is given up meanwhile
        // would stay for the rest of its ttl.
        let passes = error.is_transient();
        if passes {
            self.times = self.times.saturating_sub(1);
        }
        let is_denied = is_denied(error);
        let is_few = self.times < MAX_RELEASES;
        let is_tried = passes || is_denied || is_few || is_doubtful || is_down || several;
        let pause = if is_denied && !is_few { LAST_PAUSE } else { self.pauses.step() };
        if is_final(error) || !is_tried || Instant::now() + pause > self.end {
            if self.guard.take().is_some() {
                log_left(store, &self.request, error);
            }
            return None;
        }
        Some(pause)
    }

    /// Waits until the next release is due; false when there is none.
    async fn is_due(
        &mut self,
        store: &Store,
        pause: Duration,
        abandoned: &Option<AbandonedToken>,
    ) -> bool {
        let cleanup = Arc::clone(&self.cleanup);
        let mut due = Instant::now() + jittered(pause);
        loop {
            // Before the check, so that no end in between is missed.
            let closes = cleanup.closes.notified();
            let closed = *cleanup.closed.lock();
            // The last release of a lock that was released before.
            let last = closed.filter(|_| self.guard.is_none()).map(|at| at + SHUTDOWN_PAUSE);
            if last.is_some_and(|last| Instant::now() >= last) {
                return false;
            }
            due = last.map_or(due, |last| due.min(last));
            if due > self.end {
                return false;
            }
            let granted = match abandoned {
                Some(token) => Either::Left(token.granted()),
                None => Either::Right(pending()),
            };
            match select(pin!(granted), select(pin!(closes), pin!(sleep_until(due)))).await {
                // The lock is held by nobody now.
                Either::Left(_) => return true,
                // The manager has ended.
                Either::Right((Either::Left(_), _)) => continue,
                Either::Right((Either::Right(_), _)) => {}
            }
            if last.is_some() || !store.backend.health(&self.request).is_down {
                return true;
            }
            if self.cleanup.may_probe(store.backend.address(&self.request)) {
                // A probe is no try of the lock's own.
                self.times = self.times.saturating_sub(1);
                return true;
            }
            due = Instant::now() + jittered(LONGEST_PAUSE);
        }
    }
}

/// Decides the next pause only: a release that is repeated is not logged.
fn unanswered() -> LockError {
    LockError::because(UnavailableReason::Timeout, "released again, and not answered")
}

/// Logs that a lock is not released and ends with its ttl.
fn log_left(store: &Store, request: &Request, error: &LockError) {
    let key = request.ask.listed();
    if error.is_of_servers() && !store.backend.is_news() {
        tracing::debug!(%key, %error, "dropped lock not released: it ends with its ttl")
    } else {
        tracing::warn!(%key, %error, "dropped lock not released: it ends with its ttl")
    }
}

/// Whether a release that failed like this would fail again.
fn is_final(error: &LockError) -> bool {
    matches!(error, LockError::Unavailable { reason: UnavailableReason::Protocol, .. })
}

/// Whether a right is missing that was there when the lock was granted, and may be back soon: a
/// user is switched off and on while its password is changed.
fn is_denied(error: &LockError) -> bool {
    matches!(error, LockError::AccessDenied { .. } | LockError::Authentication { .. })
}

#[cfg(test)]
#[cfg(feature = "redis")]
mod tests {
    use tokio::task::JoinSet;
    use tokio::time::{advance, sleep};

    use super::*;
    use crate::protocol::ask::Ask;
    use crate::store::memory::Memory;
    use crate::store::redis::store::Redis;
    use crate::store::redlock::attempts::Attempts;
    use crate::value::applied::Applied;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    /// A request that may still be in flight.
    fn request(key: impl ToString) -> Request {
        request_for(HOUR, key)
    }

    fn request_for(ttl: Duration, key: impl ToString) -> Request {
        Request::of(Ask::new(key.to_string().into(), ttl, Moment::now()))
    }

    fn memory() -> (Memory, Store) {
        let memory = Memory::new();
        (memory.clone(), Store::of(memory))
    }

    fn at(url: &str, timeout: Duration) -> Store {
        Store::of(Redis::at(url, timeout))
    }

    /// A server that does not exist.
    fn unreachable() -> Store {
        at("redis://127.0.0.1:1", Duration::from_millis(20))
    }

    /// A server that never answers, while the listener is there.
    fn silent() -> (std::net::TcpListener, Store) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let store = at(&format!("redis://{}", listener.local_addr().unwrap()), HOUR / 2);
        (listener, store)
    }

    async fn until(done: impl Fn() -> bool) {
        let start = std::time::Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(60), "not in time");
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// A cleanup with its tasks.
    struct Cleaning {
        cleanup: Arc<Cleanup>,
        in_flight: Arc<InFlight>,
        store: Store,
        tasks: JoinSet<()>,
    }

    impl Cleaning {
        fn with_room_for(max_locks: usize, store: &Store) -> Self {
            let cleanup = Arc::new(Cleanup { max_locks, ..Cleanup::default() });
            let in_flight = Arc::default();
            let tasks = JoinSet::new();
            Self { cleanup, in_flight, store: store.clone(), tasks }
        }

        /// Returns whether there was room for the lock.
        fn add(&mut self, request: &Request) -> bool {
            let dropped = self.cleanup.take(request.clone(), self.in_flight.join());
            let has_room = dropped.is_some();
            if let Some(dropped) = dropped {
                self.tasks.spawn(dropped.release(self.store.clone()));
            }
            has_room
        }

        async fn finish(mut self) {
            while self.tasks.join_next().await.is_some() {}
            assert_eq!((self.cleanup.locks.count(), self.in_flight.count()), (0, 0));
            assert_eq!(self.cleanup.left.load(Ordering::Relaxed), 0, "their number was logged");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_lock_makes_room_for_a_new_one() {
        let (memory, store) = memory();
        let mut running = Cleaning::with_room_for(2, &store);
        for nth in 0..9 {
            assert!(running.add(&request(nth)));
            running.in_flight.empty().await;
            until(|| running.cleanup.locks.count() < 2).await;
        }
        let held = request(0);
        memory.ask(&held, None).unwrap();
        running.add(&held);
        running.in_flight.empty().await;
        assert!(memory.is_empty());
        running.finish().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_request_is_released_and_then_nothing_is_kept() {
        let (memory, store) = memory();
        let mut running = Cleaning::with_room_for(9, &store);
        let late = request(0);
        for after in [Duration::ZERO, Duration::from_millis(500), LAST_PAUSE * 3 / 4] {
            running.add(&late);
            running.in_flight.empty().await;
            advance(after).await;
            memory.ask(&late, None).unwrap();
            until(|| memory.is_empty()).await;
        }
        running.finish().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_is_released_for_a_few_seconds_and_not_for_its_ttl() {
        let (memory, store) = memory();
        let mut running = Cleaning::with_room_for(9, &store);
        let start = Instant::now();
        running.add(&request(0));
        running.finish().await;
        let bounds = LAST_PAUSE * 3 / 4..LAST_PAUSE * 2;
        assert!(bounds.contains(&start.elapsed()), "{:?}", start.elapsed());
        assert!(memory.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_without_an_answer_ends_soon_after_a_shutdown() {
        let (_silent, store) = silent();
        let mut running = Cleaning::with_room_for(9, &store);
        let dropped = running.cleanup.take(request(0), running.in_flight.join());
        let mut dropped = dropped.expect("there is room");
        // It was released before.
        (dropped.guard, dropped.is_first) = (None, false);
        running.tasks.spawn(dropped.release(running.store.clone()));
        sleep(Duration::from_millis(10)).await;
        let start = Instant::now();
        running.cleanup.close();
        running.finish().await;
        assert!(start.elapsed() <= SHUTDOWN_PAUSE * 3, "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_at_a_server_that_is_gone_is_given_up_soon_after_its_manager_has_ended() {
        let mut running = Cleaning::with_room_for(9, &unreachable());
        running.add(&request(0));
        sleep(Duration::from_secs(60)).await;
        assert_eq!(running.in_flight.count(), 1, "it is tried again and again");
        let start = Instant::now();
        running.cleanup.close();
        running.finish().await;
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_down_is_probed_once_a_second() {
        let cleanup = Cleanup::default();
        let may = || ["one", "one", "other"].map(|server| cleanup.may_probe(Some(server.into())));
        assert_eq!(may(), [true, false, true]);
        advance(LONGEST_PAUSE).await;
        assert_eq!(may(), [true, false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn many_locks_at_a_silent_server_are_given_up_soon_after_their_manager_has_ended() {
        let (_silent, store) = silent();
        let mut running = Cleaning::with_room_for(9_000, &store);
        for nth in 0..1_000 {
            assert!(running.add(&request(nth)));
        }
        sleep(Duration::from_millis(10)).await;
        let start = Instant::now();
        running.cleanup.close();
        running.finish().await;
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn further_releases_at_a_silent_server_delay_no_first_release() {
        let (_silent, store) = silent();
        let mut running = Cleaning::with_room_for(9_000, &store);
        for nth in 0..2 * FURTHER_IN_FLIGHT {
            let dropped = running.cleanup.take(request(nth), running.in_flight.join());
            let mut dropped = dropped.expect("there is room");
            // It was tried before.
            dropped.is_first = false;
            running.tasks.spawn(dropped.release(running.store.clone()));
        }
        sleep(Duration::from_millis(10)).await;
        let (memory, store) = memory();
        let held = request("held");
        held.token.set_applied(Applied::Yes);
        memory.ask(&held, None).unwrap();
        running.store = store;
        running.add(&held);
        let start = Instant::now();
        until(|| memory.is_empty()).await;
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        running.cleanup.close();
        running.finish().await;
    }

    #[tokio::test(start_paused = true)]
    async fn of_too_many_locks_the_newest_are_left_to_their_ttl() {
        let mut running = Cleaning::with_room_for(3, &unreachable());
        let added = [(); 5].map(|()| running.add(&request_for(Duration::from_secs(2), "order")));
        assert_eq!(added, [true, true, true, false, false], "the newest are left");
        assert_eq!(running.cleanup.left.load(Ordering::Relaxed), 2, "they are counted");
        assert_eq!(running.in_flight.count(), 3, "a shutdown does not wait for them");
        running.finish().await;
    }

    fn dropped(request: Request) -> DroppedLock {
        let cleanup = Arc::new(Cleanup::default());
        cleanup.take(request, Arc::<InFlight>::default().join()).expect("there is room")
    }

    #[test]
    fn a_lock_whose_request_may_still_arrive_is_released_three_times() {
        let mut dropped = dropped(request("order:1"));
        let mut again = || {
            dropped.times += 1;
            dropped.next(&memory().1, &Ok(Released::NotHeld))
        };
        let pauses = [again(), again(), again()];
        assert_eq!(pauses, [Some(FIRST_PAUSE), Some(LAST_PAUSE), None]);
    }

    /// The release of a lock on a node that hangs succeeds by the answers of the other nodes.
    #[test]
    fn a_lock_is_released_until_the_last_node_has_answered() {
        let request = request("order:1");
        request.token.set_applied(Applied::No);
        let attempts = request.attempts::<Attempts>();
        let vote = attempts.note_sent(2, attempts.begin(), (7, request.ask.ttl)).unwrap();
        vote.answered(Applied::Yes);
        let mut dropped = dropped(request.clone());
        let again = |dropped: &mut DroppedLock| dropped.next(&memory().1, &Ok(Released::Held));
        for nth in 1..4 * MAX_RELEASES {
            dropped.times += 1;
            assert!(again(&mut dropped).is_some_and(|pause| pause < LAST_PAUSE));
            assert_eq!(dropped.guard.is_some(), nth < DOUBTFUL_TRIES, "a shutdown waits for two");
        }
        attempts.gone(2, 1);
        assert_eq!(again(&mut dropped), None);
    }
}
