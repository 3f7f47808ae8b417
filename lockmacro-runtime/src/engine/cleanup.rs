//! Cleanup: releases of what was dropped, which nobody waits for.
//!
//! Whatever was dropped is tried for a first time before anything is tried again: neither what a
//! server did not answer for, nor what was released and may be asked for by a late request,
//! is ever in the way of it. One task does all of it, and keeps of each no more than what it was
//! asked for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::engine::in_flight::InFlightGuard;
use crate::protocol::answer::Released;
use crate::protocol::request::Request;
use crate::store::abandoned::{AbandonedToken, AbandonedTokens};
use crate::store::dispatch::Store;
use crate::value::backoff::jittered;
use crate::value::error::LockError;
use crate::value::sync::{Mutex, MutexGuard};
use crate::value::unavailability::Unavailability;

const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause while the server cannot be asked.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// After how long the last look is. What the network has not taken within a manager's timeout, 2 s
/// unless it is told another, is not sent any more.
const LAST_LOOK: Duration = Duration::from_secs(6);
/// How long after a shutdown what was released is released for a last time, and how long that may
/// take.
const CLOSED_LOOK: Duration = Duration::from_millis(2_500);
/// How often each is released at most: a server that is lost is asked for one of them at a time.
const TIMES: u8 = 3;
/// So many releases are under way at once; when a server comes back, it is not stormed.
const AT_ONCE: usize = 256;
/// The same for what is tried again.
const AGAIN_AT_ONCE: usize = 64;
/// How many bytes all of them take; what comes on top is left to its ttl.
const BYTES: usize = 16 << 20;

/// What the lists take for each, beside the item itself.
const LISTED: usize = 128;

/// What is to be released.
#[derive(Debug)]
pub(crate) struct Cleanup {
    lists: Mutex<Lists>,
    /// There is more than the task knows of.
    more: Notify,
    /// How many were not tried for a first time yet.
    untried: Arc<watch::Sender<usize>>,
    taken: Arc<AtomicUsize>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Lists {
    untried: VecDeque<Item>,
    /// What is tried again, by when, and by its number.
    again: BTreeMap<(Instant, u64), Item>,
    /// Those of them that were released once, the oldest first.
    released: BTreeSet<(u64, Instant)>,
    last: u64,
    /// When a lost server was asked last.
    probed: Option<Instant>,
    /// How many were left to their ttl.
    left: u64,
    /// The manager was shut down, and nothing is released once more from then on.
    closed: Option<Instant>,
    /// Whether the task that works on these was started.
    worked_on: bool,
}

/// A dropped lock.
#[derive(Debug)]
struct Item {
    request: Arc<Request>,
    /// Until it was released.
    guard: Option<InFlightGuard>,
    number: u64,
    /// When its lease, or its place in line, is over.
    end: Instant,
    pause: Duration,
    times: u8,
    /// Until the first try is over.
    untried: Option<Untried>,
    /// The next release is the last one.
    is_last: bool,
    /// Tells that the token was granted the lock all the same.
    given_up: Option<AbandonedToken>,
    _room: Room,
}

/// One that was not tried yet, until this is dropped.
#[derive(Debug)]
struct Untried(Arc<watch::Sender<usize>>);

impl Untried {
    fn new(count: &Arc<watch::Sender<usize>>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(Arc::clone(count))
    }
}

impl Drop for Untried {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// Bytes that are free again when this is dropped.
#[derive(Debug)]
struct Room {
    taken: Arc<AtomicUsize>,
    bytes: usize,
}

/// What is done about a lock that was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Added {
    /// The task does it.
    Kept,
    /// The task does it, and is to be started.
    Starts,
    /// It is left to its ttl: there are too many.
    Left,
    /// The same, and it is the first one.
    LeftFirst,
}

impl Default for Cleanup {
    fn default() -> Self {
        Self::with(BYTES)
    }
}

impl Cleanup {
    fn with(bytes: usize) -> Self {
        let (lists, more) = (Mutex::default(), Notify::new());
        let untried = Arc::new(watch::Sender::new(0));
        Self { lists, more, untried, taken: Arc::default(), bytes }
    }

    /// Takes a lock that is to be released, as often as it takes until its lease is over. `member`
    /// leaves when it was. When there are too many, those that were released before are let go, the
    /// oldest first: they are the least likely to be asked for again. Then the newest is left to
    /// its ttl.
    pub(crate) fn add(&self, request: Arc<Request>, guard: InFlightGuard) -> Added {
        let bytes = size_of::<Item>() + LISTED + request.bytes();
        let mut lists = self.lists();
        while self.taken.load(Ordering::Relaxed) + bytes > self.bytes {
            let Some((number, due)) = lists.released.pop_first() else {
                lists.left += 1;
                let is_first = lists.left == 1;
                drop(lists);
                return if is_first { Added::LeftFirst } else { Added::Left };
            };
            lists.again.remove(&(due, number));
        }
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        let _room = Room { taken: Arc::clone(&self.taken), bytes };
        let end = Instant::now() + request.lasts();
        lists.last += 1;
        let (number, guard, pause) = (lists.last, Some(guard), FIRST_PAUSE);
        lists.untried.push_back(Item {
            request,
            guard,
            number,
            end,
            pause,
            times: 0,
            untried: Some(Untried::new(&self.untried)),
            is_last: false,
            given_up: None,
            _room,
        });
        let started = mem::replace(&mut lists.worked_on, true);
        drop(lists);
        self.more.notify_one();
        if started { Added::Kept } else { Added::Starts }
    }

    /// The manager was shut down, and nothing is held: what was released is released once more, and
    /// all is over within three [`CLOSED_LOOK`]s.
    pub(crate) fn close(&self) {
        let (mut lists, now) = (self.lists(), Instant::now());
        lists.closed = Some(now + 2 * CLOSED_LOOK);
        let released: Vec<_> = lists.released.iter().copied().collect();
        for (number, due) in released {
            lists.released.remove(&(number, due));
            if let Some(mut item) = lists.again.remove(&(due, number)) {
                item.is_last = true;
                lists.put(item, now + CLOSED_LOOK);
            }
        }
        drop(lists);
        self.more.notify_one();
    }

    /// Takes note that the task could not be started.
    pub(crate) fn not_started(&self) {
        let left = mem::take(&mut *self.lists());
        drop(left);
    }

    /// Waits until what was dropped has been released, or could not be, or for a second.
    #[cfg(feature = "defer")]
    pub(crate) async fn tried_all(&self) {
        let mut untried = self.untried.subscribe();
        let _ = timeout(LONGEST_PAUSE, untried.wait_for(|untried| *untried == 0)).await;
    }

    /// Releases all of them, until none is left.
    pub(crate) async fn work(self: Arc<Self>, store: Arc<Store>) {
        let ended = Ended(&self);
        let (mut first, mut again) = (JoinSet::new(), JoinSet::new());
        loop {
            while first.len() < AT_ONCE
                && let Some(mut item) = self.next_untried()
            {
                item.given_up = store.given_up(&item.request);
                first.spawn(release(Arc::clone(&store), item));
            }
            self.forget_at_the_end();
            while again.len() < AGAIN_AT_ONCE
                && let Some(item) = self.next_again(|request| store.is_lost(request))
            {
                again.spawn(release(Arc::clone(&store), item));
            }
            let due = match again.len() < AGAIN_AT_ONCE {
                true => self.next_due(),
                false => None,
            };
            if first.is_empty() && again.is_empty() && due.is_none() && self.is_over() {
                // Another one may have been started already.
                return mem::forget(ended);
            }
            let granted = store.gone().map(AbandonedTokens::granted);
            if let Some((item, released)) = self.signal(&mut first, &mut again, due, granted).await
            {
                self.tried(&store, item, released);
            }
        }
    }

    /// What came of the next release; `None` when there is more to do, or something is due.
    async fn signal(
        &self,
        first: &mut JoinSet<Tried>,
        again: &mut JoinSet<Tried>,
        due: Option<Instant>,
        granted: Option<impl Future<Output = ()>>,
    ) -> Option<Tried> {
        let mut more = pin!(self.more.notified());
        let mut granted = pin!(granted);
        let mut due = pin!(due.map(sleep_until));
        poll_fn(|cx| {
            for tries in [&mut *first, &mut *again] {
                if let Poll::Ready(Some(tried)) = tries.poll_join_next(cx) {
                    return Poll::Ready(tried.ok());
                }
            }
            let is_due = |due: Pin<&mut Sleep>| due.poll(cx).is_ready();
            let is_due = due.as_mut().as_pin_mut().is_some_and(is_due);
            if granted.as_mut().as_pin_mut().is_some_and(|granted| granted.poll(cx).is_ready()) {
                self.hasten();
                return Poll::Ready(None);
            }
            if is_due || more.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            Poll::Pending
        })
        .await
    }

    /// Has those that were granted their lock all the same released at once.
    fn hasten(&self) {
        let (mut lists, now) = (self.lists(), Instant::now());
        let was_granted =
            |item: &&Item| item.given_up.as_ref().is_some_and(AbandonedToken::was_granted);
        let granted = lists.again.iter().filter(|(_, item)| was_granted(item));
        let granted: Vec<_> = granted.map(|(place, _)| *place).collect();
        for (due, number) in granted {
            lists.released.remove(&(number, due));
            if let Some(item) = lists.again.remove(&(due, number)) {
                lists.put(item, now);
            }
        }
    }

    fn next_untried(&self) -> Option<Item> {
        self.lists().untried.pop_front()
    }

    /// The next one to be tried again. Of those whose server is lost it is one a second, and the
    /// others of them go on waiting.
    fn next_again(&self, is_lost: impl Fn(&Request) -> bool) -> Option<Item> {
        let (mut lists, now) = (self.lists(), Instant::now());
        loop {
            let (due, number) = *lists.again.first_key_value()?.0;
            if due > now {
                return None;
            }
            let mut item = lists.again.remove(&(due, number))?;
            lists.released.remove(&(number, due));
            if item.is_last || !is_lost(&item.request) {
                return Some(item);
            }
            if lists.probed.is_none_or(|last| now.duration_since(last) >= LONGEST_PAUSE) {
                lists.probed = Some(now);
                // It is asked for all of them.
                item.times = item.times.saturating_sub(1);
                return Some(item);
            }
            match now < item.end {
                true => lists.put(item, now + jittered(LONGEST_PAUSE)),
                false => lists.left += u64::from(item.guard.is_some()),
            }
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let lists = self.lists();
        let due = lists.again.first_key_value().map(|((due, _), _)| *due)?;
        let end = lists.closed.filter(|end| *end > Instant::now());
        Some(end.map_or(due, |end| due.min(end)))
    }

    /// Lets what was released once be, when the time after a shutdown is over.
    fn forget_at_the_end(&self) {
        let mut lists = self.lists();
        if lists.closed.is_some_and(|end| end <= Instant::now()) {
            lists.again.retain(|_, item| item.guard.is_some());
            lists.released.clear();
        }
    }

    /// Ends the task, unless there is more.
    fn is_over(&self) -> bool {
        let mut lists = self.lists();
        if !lists.untried.is_empty() || !lists.again.is_empty() {
            return false;
        }
        let left = lists.left;
        *lists = Lists { last: lists.last, closed: lists.closed, ..Lists::default() };
        drop(lists);
        if left > 0 {
            tracing::info!(left, "dropped locks were left to their ttl");
        }
        true
    }

    /// Takes note of what came of a release.
    fn tried(&self, store: &Store, mut item: Item, released: Result<Released, LockError>) {
        let now = Instant::now();
        item.untried = None;
        if item.is_last {
            return;
        }
        // A node of several may have a token that it has not said to be gone, and may be back soon.
        let is_doubtful = item.request.is_doubtful();
        let pause = match released {
            Ok(_) if item.request.is_settled() => return,
            Ok(_) if is_doubtful => item.longer().min(LONGEST_PAUSE),
            // A request that was given up may still be under way, in a network that was cut for a
            // while.
            Ok(_) if item.times >= TIMES => return,
            Ok(_) if item.times + 1 == TIMES => LAST_LOOK,
            Ok(_) => item.longer(),
            Err(ref error) => {
                let asks_on = is_doubtful || store.is_lost(&item.request) || store.is_of_several();
                let is_tried = item.times < TIMES || asks_on;
                let pause = item.longer().min(LONGEST_PAUSE);
                if is_final(error) || !is_tried || now + pause > item.end {
                    if item.guard.is_some() {
                        left(store, &item.request, error);
                    }
                    return;
                }
                pause
            }
        };
        if released.is_ok() {
            item.guard = None;
        }
        // It may have been granted while it was released.
        let is_granted = item.given_up.as_ref().is_some_and(AbandonedToken::was_granted);
        let mut lists = self.lists();
        item.is_last = lists.closed.is_some() && item.guard.is_none();
        let pause = match is_granted {
            true => Duration::ZERO,
            false if item.is_last => CLOSED_LOOK,
            false => jittered(pause),
        };
        if now + pause <= item.end {
            lists.put(item, now + pause);
        }
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock()
    }
}

impl Lists {
    fn put(&mut self, item: Item, due: Instant) {
        if item.guard.is_none() {
            self.released.insert((item.number, due));
        }
        self.again.insert((due, item.number), item);
    }
}

impl Item {
    /// The pause before it is tried again, which is longer each time.
    fn longer(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 3).min(LONGEST_PAUSE);
        pause
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A task that was dropped with its runtime is started again.
struct Ended<'a>(&'a Cleanup);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.lists().worked_on = false;
    }
}

/// A lock that was tried, and what came of it.
type Tried = (Item, Result<Released, LockError>);

async fn release(store: Arc<Store>, mut item: Item) -> Tried {
    item.times = item.times.saturating_add(1);
    let release = store.release(&item.request);
    let released = match item.is_last {
        false => release.await,
        true => timeout(CLOSED_LOOK, release).await.unwrap_or(Ok(Released::Unconfirmed)),
    };
    (item, released)
}

/// Takes note of a lock that stays until its lease is over.
fn left(store: &Store, request: &Request, error: &LockError) {
    let key = request.listed();
    match error.is_of_servers() && !store.call_failed(error) {
        true => tracing::debug!(%key, %error, "what was dropped is left to its ttl"),
        false => tracing::warn!(%key, %error, "what was dropped is left to its ttl"),
    }
}
/// Whether a release that failed so would fail again.
fn is_final(error: &LockError) -> bool {
    match error {
        LockError::Unavailable { reason, .. } => *reason == Unavailability::Protocol,
        LockError::AccessDenied { .. } | LockError::Authentication { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep};

    use super::*;
    use crate::engine::in_flight::InFlight;
    use crate::store::memory::Memory;
    use crate::store::redis::store::Redis;
    use crate::value::time::Moment;
    use crate::value::token::Token;

    const HOUR: Duration = Duration::from_secs(60 * 60);
    const SHORT: Duration = Duration::from_secs(2);

    /// One whose request may still be under way.
    fn request(key: impl ToString) -> Arc<Request> {
        claim_for(HOUR, key)
    }

    fn claim_for(ttl: Duration, key: impl ToString) -> Arc<Request> {
        let token = Token::new("test", "", "", Moment::now()).unwrap();
        Arc::new(Request::new(key.to_string().into(), token, ttl))
    }

    fn is_left(added: Added) -> bool {
        matches!(added, Added::Left | Added::LeftFirst)
    }

    fn memory() -> (Memory, Arc<Store>) {
        let memory = Memory::new();
        (memory.clone(), Arc::new(Store::Memory(memory)))
    }

    /// A server that nobody has at port 1 of this machine.
    fn nobody() -> Arc<Store> {
        let gone = Redis::new("redis://127.0.0.1:1", Duration::from_millis(20));
        Arc::new(Store::Redis(Arc::new(gone.unwrap())))
    }

    async fn until(done: impl Fn() -> bool) {
        let start = std::time::Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(60), "not in time");
            sleep(Duration::from_millis(1)).await;
        }
    }

    struct Cleaned {
        cleanup: Arc<Cleanup>,
        in_flight: InFlight,
        store: Arc<Store>,
        tasks: JoinSet<()>,
    }

    impl Cleaned {
        fn with(bytes: usize, store: &Arc<Store>) -> Self {
            let (cleanup, in_flight) = (Arc::new(Cleanup::with(bytes)), InFlight::default());
            Self { cleanup, in_flight, store: Arc::clone(store), tasks: JoinSet::new() }
        }

        fn add(&mut self, request: &Arc<Request>) -> Added {
            let added = self.cleanup.add(Arc::clone(request), self.in_flight.join());
            if added == Added::Starts {
                let (cleanup, store) = (Arc::clone(&self.cleanup), Arc::clone(&self.store));
                self.tasks.spawn(cleanup.work(store));
            }
            added
        }

        fn taken(&self) -> usize {
            self.cleanup.taken.load(Ordering::Relaxed)
        }

        async fn ends(mut self) {
            while self.tasks.join_next().await.is_some() {}
            assert_eq!((self.taken(), self.in_flight.count()), (0, 0));
        }
    }

    /// Room for so many with keys of one byte.
    fn room(items: usize) -> usize {
        items * (size_of::<Item>() + LISTED + request("x").bytes())
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_answered_is_in_the_way_of_nobody() {
        let (memory, store) = memory();
        let mut cleaned = Cleaned::with(room(2), &store);
        for nth in 0..9 {
            assert!(!is_left(cleaned.add(&request(nth))));
            cleaned.in_flight.empty().await;
        }
        let victim = request(0);
        memory.acquire(&victim).unwrap();
        cleaned.add(&victim);
        cleaned.in_flight.empty().await;
        assert!(memory.holds_nothing());
        // Of those that are looked at again the oldest were let go.
        let kept: Vec<_> = cleaned.cleanup.lists().again.values().map(|item| item.number).collect();
        assert!(kept.len() <= 2 && kept.iter().all(|number| *number > 8), "{kept:?}");
        cleaned.ends().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_request_is_taken_back_and_then_nothing_is_kept() {
        let (memory, store) = memory();
        let mut cleaned = Cleaned::with(BYTES, &store);
        let late = request(0);
        for after in [Duration::ZERO, Duration::from_millis(500), LAST_LOOK * 3 / 4] {
            cleaned.add(&late);
            cleaned.in_flight.empty().await;
            advance(after).await;
            memory.acquire(&late).unwrap();
            until(|| memory.holds_nothing()).await;
        }
        cleaned.ends().await;
    }

    #[tokio::test(start_paused = true)]
    async fn none_is_released_more_than_three_times() {
        let (memory, store) = memory();
        let mut cleaned = Cleaned::with(BYTES, &store);
        let start = Instant::now();
        cleaned.add(&request(0));
        while !cleaned.cleanup.lists().again.is_empty() || cleaned.in_flight.count() > 0 {
            let times = cleaned.cleanup.lists().again.values().map(|item| item.times).max();
            assert!(times.unwrap_or_default() < TIMES);
            sleep(Duration::from_millis(1)).await;
        }
        assert!(start.elapsed() < LAST_LOOK * 2, "an hour is not waited for");
        assert!(memory.holds_nothing());
        cleaned.ends().await;
    }

    #[tokio::test]
    async fn what_a_server_does_not_answer_for_is_in_the_way_of_nobody() {
        let (memory, store) = memory();
        let mut cleaned = Cleaned::with(room(3), &nobody());
        // Each has its first try, and what was never there is not asked for longer than its lease.
        for nth in 0..3 {
            assert!(!is_left(cleaned.add(&claim_for(SHORT, nth))));
        }
        let mut others = Cleaned::with(room(3), &store);
        let victim = request(0);
        victim.settle(true);
        memory.acquire(&victim).unwrap();
        others.add(&victim);
        until(|| memory.holds_nothing()).await;
        others.ends().await;
        cleaned.ends().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_lost_slows_down_nothing_that_others_have() {
        let (cleanup, in_flight) = (Cleanup::default(), InFlight::default());
        for nth in 0..20 {
            cleanup.add(request(if nth % 2 == 0 { "lost" } else { "well" }), in_flight.join());
        }
        let now = Instant::now();
        while let Some(item) = cleanup.next_untried() {
            cleanup.lists().put(item, now);
        }
        let is_lost = |request: &Request| request.key.as_str() == "lost";
        let due = || std::iter::from_fn(|| cleanup.next_again(is_lost)).collect::<Vec<_>>();
        let (lost, well): (Vec<_>, Vec<_>) = due().into_iter().partition(|i| is_lost(&i.request));
        assert_eq!((lost.len(), well.len()), (1, 10));
        advance(2 * LONGEST_PAUSE).await;
        assert_eq!(due().len(), 1, "of the others one a second");
    }

    #[tokio::test]
    async fn all_of_them_take_sixteen_megabytes_and_the_newest_are_left() {
        let mut cleaned = Cleaned::with(BYTES, &nobody());
        let long = "x".repeat(1_000);
        let request = |nth| claim_for(SHORT, format!("{nth}{long}"));
        let requests: Vec<_> = (0..40_000).map(request).collect();
        let added: Vec<_> = requests.iter().map(|request| cleaned.add(request)).collect();
        assert!(cleaned.taken() <= BYTES, "{}", cleaned.taken());
        let kept = added.iter().position(|added| *added == Added::LeftFirst).expect("too many");
        assert!(kept > 8_000, "{kept} have room");
        assert!(added[kept..].iter().all(|added| is_left(*added)), "the newest are left");
        assert_eq!(cleaned.cleanup.lists().left, (40_000 - kept) as u64, "they are counted");
        assert_eq!(cleaned.in_flight.count(), kept, "and not waited for");
        cleaned.ends().await;
    }
}
