//! Cleanup: releases dropped locks until that is answered, each by a job of the background thread.
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

use crate::engine::cleanup::retry::{LONGEST_PAUSE, Tries};
use crate::engine::in_flight::{InFlight, InFlightGuard};
use crate::protocol::answer::Released;
use crate::protocol::request::Request;
use crate::store::dispatch::Store;
use crate::store::waiters::{AbandonedToken, AbandonedTokens};
use crate::value::backoff::jittered;
use crate::value::error::{LockError, Unavailability};
use crate::value::random::HashMap;
use crate::value::sync::{Mutex, until};
use crate::value::time::Instant;

/// Most first releases in flight, so that a server that is available again is not flooded.
const FIRST_IN_FLIGHT: usize = 256;
/// Most further releases in flight.
const FURTHER_IN_FLIGHT: usize = 64;
/// Most dropped locks at a time. Further ones are left to their ttl.
pub(crate) const MAX_LOCKS: usize = 16_384;
/// How long after a shutdown a lock that was released before is released once more, and the timeout
/// of each release but the first.
const SHUTDOWN_PAUSE: Duration = Duration::from_millis(2_500);
/// How long after the end of its manager a lock is tried.
const LAST_TRIES: Duration = Duration::from_secs(25);

/// The dropped locks of a manager.
#[derive(Debug)]
pub(crate) struct Cleanup {
    max_locks: usize,
    locks: InFlight,
    /// The locks whose first release is not over.
    untried: InFlight,
    first: Semaphore,
    further: Semaphore,
    /// The time of the last release at each lost server.
    probed: Mutex<HashMap<Option<Box<str>>, Instant>>,
    /// Number of locks that were left to their ttl.
    left: AtomicUsize,
    /// When the manager ended, and the signal of that.
    closed: Mutex<Option<Instant>>,
    closes: Notify,
}

impl Default for Cleanup {
    fn default() -> Self {
        Self::with_room_for(MAX_LOCKS)
    }
}

impl Cleanup {
    fn with_room_for(max_locks: usize) -> Self {
        Self {
            max_locks,
            locks: InFlight::default(),
            untried: InFlight::default(),
            first: Semaphore::new(FIRST_IN_FLIGHT),
            further: Semaphore::new(FURTHER_IN_FLIGHT),
            probed: Mutex::default(),
            left: AtomicUsize::new(0),
            closed: Mutex::default(),
            closes: Notify::new(),
        }
    }

    /// Takes a dropped lock in, to be [released](DroppedLock::release); `None` when there are too
    /// many. `guard` is dropped when the lock was released.
    pub(crate) fn take(
        self: &Arc<Self>,
        request: Arc<Request>,
        guard: InFlightGuard,
    ) -> Option<DroppedLock> {
        if self.locks.count() >= self.max_locks {
            if self.left.fetch_add(1, Ordering::Relaxed) == 0 {
                let key = request.listed();
                tracing::warn!(%key, "too many dropped locks: this one and more end by ttl");
            }
            return None;
        }
        Some(DroppedLock {
            cleanup: Arc::clone(self),
            tries: Tries::new(request, guard),
            untried: Some(self.untried.join()),
            abandoned: None,
            counted: Some(self.locks.join()),
        })
    }

    /// The manager was shut down or dropped: within a few seconds, each lock that was released
    /// before is released one last time. A lock that was not is tried for 25 s.
    pub(crate) fn close(&self) {
        *self.closed.lock() = Some(Instant::now());
        self.closes.notify_waiters();
    }

    /// Waits until every dropped lock was tried once, for a second at most.
    #[cfg(feature = "defer")]
    pub(crate) async fn tried_all(&self) {
        let _ = timeout(LONGEST_PAUSE, self.untried.empty()).await;
    }

    /// Whether a lock at a lost server may be released now: one a second is, as a probe for all.
    fn may_probe(&self, server: Option<Box<str>>) -> bool {
        let (mut probed, now) = (self.probed.lock(), Instant::now());
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
    tries: Tries,
    /// Present until the first try is over.
    untried: Option<InFlightGuard>,
    /// Reports a late grant to the token.
    abandoned: Option<AbandonedToken>,
    /// Counts it among the dropped locks.
    counted: Option<InFlightGuard>,
}

impl DroppedLock {
    /// Releases the lock until that is answered, its lease is over, or its manager has ended for a
    /// while.
    pub(crate) async fn release(mut self, store: Arc<Store>) {
        let cleanup = Arc::clone(&self.cleanup);
        let is_over = {
            let (over, releases) = (pin!(cleanup.over()), pin!(self.releases(&store)));
            matches!(select(releases, over).await, Either::Right(_))
        };
        if is_over {
            self.is_left();
        }
        drop(self.counted.take());
        if cleanup.locks.count() == 0 {
            let left = cleanup.left.swap(0, Ordering::Relaxed);
            if left > 0 {
                tracing::info!(left, "dropped locks were not released: they end with their ttl");
            }
        }
    }

    async fn releases(&mut self, store: &Store) {
        // A later grant to the token of a waiter is noticed.
        let tokens = store.servers().abandoned().filter(|_| self.tries.request.waits());
        let bits = self.tries.request.token.bits();
        self.abandoned = tokens.map(|all: Arc<AbandonedTokens>| all.abandon(bits));
        loop {
            let released = self.try_once(store).await;
            self.untried = None;
            let Some(pause) = self.tries.next(store.servers(), &released) else { return };
            // Where there is no room, those that were released twice are the first to go: a late
            // request for them is the least likely.
            let is_crowded = self.cleanup.locks.count() > self.cleanup.max_locks / 2;
            let is_first_to_go = self.tries.guard.is_none() && self.tries.times >= 2;
            if is_crowded && is_first_to_go || !self.is_due(store, pause).await {
                return;
            }
        }
    }

    /// Counts a lock that was not released.
    fn is_left(&self) {
        let left = usize::from(self.tries.guard.is_some());
        self.cleanup.left.fetch_add(left, Ordering::Relaxed);
    }

    async fn try_once(&mut self, store: &Store) -> Result<Released, LockError> {
        let permits = match self.untried {
            Some(_) => &self.cleanup.first,
            None => &self.cleanup.further,
        };
        // Never closed.
        let _permit = permits.acquire().await;
        self.tries.times = self.tries.times.saturating_add(1);
        let release = store.release(&self.tries.request);
        match self.tries.guard.is_some() && self.cleanup.closed.lock().is_none() {
            true => release.await,
            // The end of the thread may wait for this.
            false => timeout(SHUTDOWN_PAUSE, release).await.unwrap_or_else(|_| Err(unanswered())),
        }
    }

    /// Waits until the next release is due; false when there is none.
    async fn is_due(&mut self, store: &Store, pause: Duration) -> bool {
        let cleanup = Arc::clone(&self.cleanup);
        let mut due = Instant::now() + jittered(pause);
        loop {
            let mut closes = pin!(cleanup.closes.notified());
            // Before the check, so that no end in between is missed.
            closes.as_mut().enable();
            let closed = *cleanup.closed.lock();
            if let Some(at) = closed.filter(|_| self.tries.guard.is_none()) {
                if Instant::now() >= at + SHUTDOWN_PAUSE {
                    return false;
                }
                due = due.min(at + SHUTDOWN_PAUSE);
            }
            if due > self.tries.end {
                self.is_left();
                return false;
            }
            let granted = pin!(granted(self.abandoned.as_ref()));
            match select(granted, select(closes, pin!(sleep_until(due)))).await {
                // The lock is held by nobody now.
                Either::Left(_) => return true,
                // The manager has ended.
                Either::Right((Either::Left(_), _)) => continue,
                Either::Right((Either::Right(_), _)) => {}
            }
            let is_last = closed.is_some() && self.tries.guard.is_none();
            if is_last || !store.servers().is_lost(&self.tries.request) {
                return true;
            }
            if cleanup.may_probe(store.servers().address(&self.tries.request)) {
                // A probe is no try of the lock's own.
                self.tries.times = self.tries.times.saturating_sub(1);
                return true;
            }
            due = Instant::now() + jittered(LONGEST_PAUSE);
        }
    }
}

/// Waits until an abandoned token is granted the lock.
async fn granted(abandoned: Option<&AbandonedToken>) {
    match abandoned {
        Some(token) => token.granted().await,
        None => pending().await,
    }
}

/// Decides the next pause only: a release that is repeated is not logged.
fn unanswered() -> LockError {
    LockError::unavailable(Unavailability::Timeout, "released again, and not answered")
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;
    use tokio::time::{advance, sleep};

    use super::*;
    use crate::engine::cleanup::retry::LAST_PAUSE;
    use crate::store::memory::Memory;
    use crate::store::redis::store::Redis;
    use crate::value::applied::Applied;
    use crate::value::token::Token;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    /// A request that may still be in flight.
    fn request(key: impl ToString) -> Arc<Request> {
        request_for(HOUR, key)
    }

    fn request_for(ttl: Duration, key: impl ToString) -> Arc<Request> {
        let token = Token::new("test", "", "").unwrap();
        Arc::new(Request::new(key.to_string().into(), token, ttl))
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

    /// A server that never answers, while the listener is there.
    fn silent() -> (std::net::TcpListener, Arc<Store>) {
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

    /// A cleanup with its jobs.
    struct Running {
        cleanup: Arc<Cleanup>,
        in_flight: InFlight,
        store: Arc<Store>,
        jobs: JoinSet<()>,
    }

    impl Running {
        fn with_room_for(max_locks: usize, store: &Arc<Store>) -> Self {
            let cleanup = Arc::new(Cleanup::with_room_for(max_locks));
            let (in_flight, jobs) = (InFlight::default(), JoinSet::new());
            Self { cleanup, in_flight, store: Arc::clone(store), jobs }
        }

        /// Returns whether there was room for the lock.
        fn add(&mut self, request: &Arc<Request>) -> bool {
            let dropped = self.cleanup.take(Arc::clone(request), self.in_flight.join());
            let has_room = dropped.is_some();
            if let Some(dropped) = dropped {
                self.jobs.spawn(dropped.release(Arc::clone(&self.store)));
            }
            has_room
        }

        async fn ends(mut self) {
            while self.jobs.join_next().await.is_some() {}
            let counts = (self.cleanup.locks.count(), self.cleanup.untried.count());
            assert_eq!((counts, self.in_flight.count()), ((0, 0), 0));
            assert_eq!(self.cleanup.left.load(Ordering::Relaxed), 0, "their number was logged");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_lock_makes_room_for_a_new_one() {
        let (memory, store) = memory();
        let mut running = Running::with_room_for(2, &store);
        for nth in 0..9 {
            assert!(running.add(&request(nth)));
            running.in_flight.empty().await;
            until(|| running.cleanup.locks.count() < 2).await;
        }
        let held = request(0);
        memory.acquire(&held).unwrap();
        running.add(&held);
        running.in_flight.empty().await;
        assert!(memory.holds_nothing());
        running.ends().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_request_is_released_and_then_nothing_is_kept() {
        let (memory, store) = memory();
        let mut running = Running::with_room_for(9, &store);
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
    async fn a_lock_is_released_for_a_few_seconds_and_not_for_its_ttl() {
        let (memory, store) = memory();
        let mut running = Running::with_room_for(9, &store);
        let start = Instant::now();
        running.add(&request(0));
        running.ends().await;
        let bounds = LAST_PAUSE * 3 / 4..LAST_PAUSE * 2;
        assert!(bounds.contains(&start.elapsed()), "{:?}", start.elapsed());
        assert!(memory.holds_nothing());
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_without_an_answer_ends_soon_after_a_shutdown() {
        let (_silent, store) = silent();
        let mut running = Running::with_room_for(9, &store);
        let dropped = running.cleanup.take(request(0), running.in_flight.join());
        let mut dropped = dropped.expect("there is room");
        // It was released before.
        (dropped.tries.guard, dropped.untried) = (None, None);
        running.jobs.spawn(dropped.release(Arc::clone(&running.store)));
        sleep(Duration::from_millis(10)).await;
        let start = Instant::now();
        running.cleanup.close();
        running.ends().await;
        assert!(start.elapsed() <= SHUTDOWN_PAUSE * 3, "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_at_a_server_that_is_gone_is_given_up_soon_after_its_manager_has_ended() {
        let mut running = Running::with_room_for(9, &unreachable());
        running.add(&request(0));
        sleep(Duration::from_secs(60)).await;
        assert_eq!(running.in_flight.count(), 1, "it is tried again and again");
        let start = Instant::now();
        running.cleanup.close();
        running.ends().await;
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_server_is_probed_once_a_second() {
        let cleanup = Cleanup::default();
        let may = || ["one", "one", "other"].map(|server| cleanup.may_probe(Some(server.into())));
        assert_eq!(may(), [true, false, true]);
        advance(LONGEST_PAUSE).await;
        assert_eq!(may(), [true, false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn many_locks_at_a_silent_server_are_given_up_soon_after_their_manager_has_ended() {
        let (_silent, store) = silent();
        let mut running = Running::with_room_for(9_000, &store);
        for nth in 0..1_000 {
            assert!(running.add(&request(nth)));
        }
        sleep(Duration::from_millis(10)).await;
        let start = Instant::now();
        running.cleanup.close();
        running.ends().await;
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn further_releases_at_a_silent_server_delay_no_first_release() {
        let (_silent, store) = silent();
        let mut running = Running::with_room_for(9_000, &store);
        for nth in 0..2 * FURTHER_IN_FLIGHT {
            let dropped = running.cleanup.take(request(nth), running.in_flight.join());
            let mut dropped = dropped.expect("there is room");
            // It was tried before.
            dropped.untried = None;
            running.jobs.spawn(dropped.release(Arc::clone(&running.store)));
        }
        sleep(Duration::from_millis(10)).await;
        let (memory, store) = memory();
        let held = request("held");
        held.set_applied(Applied::Yes);
        memory.acquire(&held).unwrap();
        running.store = store;
        running.add(&held);
        let start = Instant::now();
        until(|| memory.holds_nothing()).await;
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        running.cleanup.close();
        running.ends().await;
    }

    #[tokio::test(start_paused = true)]
    async fn of_too_many_locks_the_newest_are_left_to_their_ttl() {
        let mut running = Running::with_room_for(3, &unreachable());
        let added = [(); 5].map(|()| running.add(&request_for(Duration::from_secs(2), "order")));
        assert_eq!(added, [true, true, true, false, false], "the newest are left");
        assert_eq!(running.cleanup.left.load(Ordering::Relaxed), 2, "they are counted");
        assert_eq!(running.in_flight.count(), 3, "a shutdown does not wait for them");
        running.ends().await;
    }
}
