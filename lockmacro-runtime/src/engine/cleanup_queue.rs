//! The dropped locks that wait for a release: queued in the order of their tries, bounded in bytes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::engine::in_flight::InFlightGuard;
use crate::protocol::request::Request;
use crate::store::abandoned::AbandonedToken;
use crate::value::backoff::{Backoff, jittered};
use crate::value::sync::{Mutex, MutexGuard};
use crate::value::time::Instant;

const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Length of a pause in percent of the pause before.
const GROWTH: u32 = 300;
/// Longest pause between two tries of a release that failed, and between two probes of a lost
/// server.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Delay of the last release after a shutdown, and the timeout of each release but the first.
pub(crate) const SHUTDOWN_PAUSE: Duration = Duration::from_millis(2_500);
/// Most bytes of all queued locks. Further locks are left to their ttl.
pub(crate) const MAX_BYTES: usize = 16 << 20;
/// Bytes of an entry of the queues, beside the item itself.
const ENTRY_BYTES: usize = 128;

/// Dropped locks, until each is released or its lease is over.
#[derive(Debug)]
pub(crate) struct CleanupQueue {
    queues: Mutex<Queues>,
    /// Number of locks whose first release is not over.
    untried: Arc<watch::Sender<usize>>,
    used: Arc<AtomicUsize>,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct Queues {
    untried: VecDeque<Item>,
    /// Locks to be tried again, by their due time and number.
    retries: BTreeMap<(Instant, u64), Item>,
    /// Those of `retries` that were released before, the oldest first.
    released: BTreeSet<(u64, Instant)>,
    last_number: u64,
    /// Time of the last try at a lost server.
    probed: Option<Instant>,
    /// Number of locks that were left to their ttl.
    left: u64,
    /// After a shutdown: when to stop the further releases of locks that were released before.
    closed: Option<Instant>,
    /// The task that works on the queues was started.
    has_task: bool,
}

/// A dropped lock.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) request: Arc<Request>,
    /// Counts the lock as in flight, until it was released.
    pub(crate) guard: Option<InFlightGuard>,
    number: u64,
    /// End of its lease, or of its time in the queue.
    pub(crate) end: Instant,
    pauses: Backoff,
    /// Number of tries.
    pub(crate) times: u8,
    /// Present until the first try is over.
    pub(crate) untried: Option<Untried>,
    /// The next release is the last one.
    pub(crate) is_last: bool,
    /// Reports a late grant to the token.
    pub(crate) abandoned: Option<AbandonedToken>,
    _reserved: Reserved,
}

/// Counts one lock whose first release is not over.
#[derive(Debug)]
pub(crate) struct Untried(Arc<watch::Sender<usize>>);

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

/// Bytes of the queue that are in use until this is dropped.
#[derive(Debug)]
struct Reserved {
    used: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The outcome of adding a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Added {
    /// The running task releases it.
    Queued,
    /// It is queued, and the caller has to start the task.
    StartTask,
    /// The queue is full: the lock is left to its ttl.
    Full,
    /// The queue is full for the first time: the lock is left to its ttl.
    FirstFull,
}

impl CleanupQueue {
    pub(crate) fn new(max_bytes: usize) -> Self {
        let (queues, used) = Default::default();
        Self { queues, untried: Arc::new(watch::Sender::new(0)), used, max_bytes }
    }

    /// Queues a dropped lock. `guard` is dropped when the lock was released.
    ///
    /// A full queue first drops the locks that were released before, the oldest first: a late
    /// request for them is the least likely. Then the new lock is left to its ttl.
    pub(crate) fn add(&self, request: Arc<Request>, guard: InFlightGuard) -> Added {
        let bytes = item_bytes(&request);
        let mut queues = self.queues();
        while self.used.load(Ordering::Relaxed) + bytes > self.max_bytes {
            let Some((number, due)) = queues.released.pop_first() else {
                queues.left += 1;
                let is_first = queues.left == 1;
                drop(queues);
                return if is_first { Added::FirstFull } else { Added::Full };
            };
            queues.retries.remove(&(due, number));
        }
        self.used.fetch_add(bytes, Ordering::Relaxed);
        let _reserved = Reserved { used: Arc::clone(&self.used), bytes };
        let end = Instant::now() + request.lasts();
        queues.last_number += 1;
        let (number, guard) = (queues.last_number, Some(guard));
        let pauses = Backoff::growing(FIRST_PAUSE, LONGEST_PAUSE, GROWTH);
        queues.untried.push_back(Item {
            request,
            guard,
            number,
            end,
            pauses,
            times: 0,
            untried: Some(Untried::new(&self.untried)),
            is_last: false,
            abandoned: None,
            _reserved,
        });
        let had_task = mem::replace(&mut queues.has_task, true);
        if had_task { Added::Queued } else { Added::StartTask }
    }

    /// Puts a lock back, to be tried again after `pause`, unless its lease is over by then.
    pub(crate) fn retry_after(&self, mut item: Item, pause: Duration) {
        let now = Instant::now();
        // The token may have been granted the lock while it was released.
        let is_granted = item.abandoned.as_ref().is_some_and(AbandonedToken::was_granted);
        let mut queues = self.queues();
        item.is_last = queues.closed.is_some() && item.guard.is_none();
        let pause = match is_granted {
            true => Duration::ZERO,
            false if item.is_last => SHUTDOWN_PAUSE,
            false => jittered(pause),
        };
        if now + pause <= item.end {
            queues.retry_at(item, now + pause);
        }
    }

    /// The manager was shut down: each lock that was released before is released one last time,
    /// beside a release that is due before that.
    pub(crate) fn close(&self) {
        let (mut queues, now) = (self.queues(), Instant::now());
        queues.closed = Some(now + 2 * SHUTDOWN_PAUSE);
        let last = now + SHUTDOWN_PAUSE;
        let later = queues.released.iter().filter(|(_, due)| *due > last);
        for (number, due) in later.copied().collect::<Vec<_>>() {
            queues.released.remove(&(number, due));
            if let Some(mut item) = queues.retries.remove(&(due, number)) {
                item.is_last = true;
                queues.retry_at(item, last);
            }
        }
    }

    /// Drops all locks: their task could not be started.
    pub(crate) fn clear(&self) {
        let cleared = mem::take(&mut *self.queues());
        drop(cleared);
    }

    /// The task has ended, and is started again with the next lock.
    pub(crate) fn task_ended(&self) {
        self.queues().has_task = false;
    }

    /// Waits until every lock was tried once.
    #[cfg(feature = "defer")]
    pub(crate) async fn tried_all(&self) {
        let mut untried = self.untried.subscribe();
        let _ = untried.wait_for(|untried| *untried == 0).await;
    }

    /// Makes those locks due at once whose abandoned token was granted after all.
    pub(crate) fn hasten_granted(&self) {
        let (mut queues, now) = (self.queues(), Instant::now());
        let was_granted =
            |item: &&Item| item.abandoned.as_ref().is_some_and(AbandonedToken::was_granted);
        let granted = queues.retries.iter().filter(|(_, item)| was_granted(item));
        let granted: Vec<_> = granted.map(|(entry, _)| *entry).collect();
        for (due, number) in granted {
            queues.released.remove(&(number, due));
            if let Some(item) = queues.retries.remove(&(due, number)) {
                queues.retry_at(item, now);
            }
        }
    }

    pub(crate) fn next_untried(&self) -> Option<Item> {
        self.queues().untried.pop_front()
    }

    /// Takes the next lock that is due to be tried again. Of the locks at lost servers only one a
    /// second is taken, as a probe for all of them.
    pub(crate) fn next_retry(&self, is_lost: impl Fn(&Request) -> bool) -> Option<Item> {
        let (mut queues, now) = (self.queues(), Instant::now());
        loop {
            let (due, number) = *queues.retries.first_key_value()?.0;
            if due > now {
                return None;
            }
            let mut item = queues.retries.remove(&(due, number))?;
            queues.released.remove(&(number, due));
            let ends = queues.closed.is_some() && item.guard.is_none();
            if ends || item.is_last || !is_lost(&item.request) {
                return Some(item);
            }
            if queues.probed.is_none_or(|last| now.duration_since(last) >= LONGEST_PAUSE) {
                queues.probed = Some(now);
                // A probe is no try of the lock's own.
                item.times = item.times.saturating_sub(1);
                return Some(item);
            }
            match now < item.end {
                true => queues.retry_at(item, now + jittered(LONGEST_PAUSE)),
                false => queues.left += u64::from(item.guard.is_some()),
            }
        }
    }

    /// When the next lock is to be tried again, or the time after a shutdown is over.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let queues = self.queues();
        let due = queues.retries.first_key_value().map(|((due, _), _)| *due)?;
        let end = queues.closed.filter(|end| *end > Instant::now());
        Some(end.map_or(due, |end| due.min(end)))
    }

    /// Drops the locks that were released before, once the time after a shutdown is over.
    pub(crate) fn drop_released_after_shutdown(&self) {
        let mut queues = self.queues();
        if queues.closed.is_some_and(|end| end <= Instant::now()) {
            queues.retries.retain(|_, item| item.guard.is_some());
            queues.released.clear();
        }
    }

    /// Whether the queues are empty. If so, the task has to end, as the next lock starts another.
    pub(crate) fn is_over(&self) -> bool {
        let mut queues = self.queues();
        if !queues.untried.is_empty() || !queues.retries.is_empty() {
            return false;
        }
        let left = queues.left;
        let (last_number, closed) = (queues.last_number, queues.closed);
        *queues = Queues { last_number, closed, ..Queues::default() };
        drop(queues);
        if left > 0 {
            tracing::info!(left, "dropped locks were not released: they end with their ttl");
        }
        true
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock()
    }
}

impl Queues {
    fn retry_at(&mut self, item: Item, due: Instant) {
        if item.guard.is_none() {
            self.released.insert((item.number, due));
        }
        self.retries.insert((due, item.number), item);
    }
}

impl Item {
    /// The pause before the next try.
    pub(crate) fn next_pause(&mut self) -> Duration {
        self.pauses.step()
    }
}

/// Approximate bytes of a queued lock.
fn item_bytes(request: &Request) -> usize {
    size_of::<Item>() + ENTRY_BYTES + request.bytes()
}

/// Queries for the tests of the task.
#[cfg(test)]
impl CleanupQueue {
    /// A queue with room for this number of locks like `request`.
    pub(crate) fn with_room_for(items: usize, request: &Request) -> Self {
        Self::new(items * item_bytes(request))
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn left(&self) -> u64 {
        self.queues().left
    }

    /// The number and the tries of each lock that is to be tried again.
    pub(crate) fn retries(&self) -> Vec<(u64, u8)> {
        self.queues().retries.values().map(|item| (item.number, item.times)).collect()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::engine::in_flight::InFlight;
    use crate::value::token::Token;

    fn request(key: &str) -> Arc<Request> {
        let token = Token::new("test", "", "").unwrap();
        Arc::new(Request::new(key.into(), token, Duration::from_secs(60 * 60)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_server_delays_no_release_at_other_servers() {
        let (queue, in_flight) = (CleanupQueue::new(MAX_BYTES), InFlight::default());
        for nth in 0..20 {
            queue.add(request(if nth % 2 == 0 { "lost" } else { "well" }), in_flight.join());
        }
        let now = Instant::now();
        while let Some(item) = queue.next_untried() {
            queue.queues().retry_at(item, now);
        }
        let is_lost = |request: &Request| request.key.as_str() == "lost";
        let due = || std::iter::from_fn(|| queue.next_retry(is_lost)).collect::<Vec<_>>();
        let (lost, well): (Vec<_>, Vec<_>) = due().into_iter().partition(|i| is_lost(&i.request));
        assert_eq!((lost.len(), well.len()), (1, 10));
        advance(2 * LONGEST_PAUSE).await;
        assert_eq!(due().len(), 1, "one a second at the lost server");
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_shutdown_a_lost_server_puts_off_no_release_and_each_keeps_its_time() {
        let (queue, in_flight) = (CleanupQueue::new(MAX_BYTES), InFlight::default());
        let (soon, late) = (Duration::from_millis(20), 2 * SHUTDOWN_PAUSE);
        for pause in [soon, soon, late] {
            queue.add(request("lost"), in_flight.join());
            let mut item = queue.next_untried().unwrap();
            // It was released before.
            (item.guard, item.untried) = (None, None);
            queue.queues().retry_at(item, Instant::now() + pause);
        }
        queue.close();
        let due = || std::iter::from_fn(|| queue.next_retry(|_| true)).collect::<Vec<_>>();
        let are_last = |items: &[Item]| items.iter().map(|item| item.is_last).collect::<Vec<_>>();
        advance(soon).await;
        let first = due();
        assert_eq!(are_last(&first), [false, false]);
        advance(SHUTDOWN_PAUSE).await;
        assert_eq!(are_last(&due()), [true]);
        first.into_iter().for_each(|item| queue.retry_after(item, soon));
        advance(SHUTDOWN_PAUSE).await;
        assert_eq!(are_last(&due()), [true, true]);
    }
}
