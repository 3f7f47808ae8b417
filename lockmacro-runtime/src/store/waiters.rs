//! Waiting in line: a grant comes by itself to whoever is first, so nobody polls. What can get lost
//! on the way is found again by asking once in a while.

use std::collections::HashMap;
use std::future::poll_fn;
use std::mem;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use crate::value::fence::Fence;
use crate::value::sync::{Mutex, MutexGuard};
use crate::value::time::Moment;

/// How often a waiter asks again, and refreshes its entry.
const TICK: Duration = Duration::from_secs(2);
/// The same when no grant can be heard, for each who is before it and itself.
const TICK_UNHEARD: Duration = Duration::from_millis(100);
/// How often the head asks while a foreign client holds the lock, whose release is told to nobody,
/// and up to when it does so. Each divides the next one, and the last is as usual for pollers.
const FOREIGN: [(Duration, Duration); 3] = [
    (Duration::from_millis(25), Duration::from_secs(2)),
    (Duration::from_millis(50), Duration::from_secs(10)),
    (Duration::from_millis(100), Duration::MAX),
];
/// Shortest pause between two questions.
const TICK_MIN: Duration = Duration::from_millis(2);
/// So many first ones in line also ask when the lock expires, in case its holder is dead.
const HEIRS: u32 = 3;
/// Among so many who came first is the first in line: those who ask at the same time may overtake
/// each other on their way.
const FIRST: usize = 64;

/// The waiters of one connection, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    last: AtomicU64,
    entries: Mutex<HashMap<u64, Arc<Entry>>>,
    pub(crate) gone: Arc<AbandonedTokens>,
}

/// Tokens that were given up and may stand in line all the same: a request for one may still
/// arrive.
#[derive(Debug, Default)]
pub(crate) struct AbandonedTokens {
    tokens: Mutex<HashMap<u32, Arc<AtomicBool>>>,
    /// One of them was granted its lock.
    granted: Notify,
}

/// A token that was given up; dropping it has it forgotten.
#[derive(Debug)]
pub(crate) struct AbandonedToken {
    gone: Arc<AbandonedTokens>,
    bits: u32,
    granted: Arc<AtomicBool>,
}

impl AbandonedTokens {
    /// From now on a grant to this token, whose random bits these are, is told.
    pub(crate) fn given_up(self: &Arc<Self>, bits: u64) -> AbandonedToken {
        let bits = kept_in_numbers(bits);
        let granted = Arc::clone(self.tokens().entry(bits).or_default());
        AbandonedToken { gone: Arc::clone(self), bits, granted }
    }

    /// Waits until one of them was granted its lock, for the one task that releases them.
    pub(crate) async fn granted(self: Arc<Self>) {
        self.granted.notified().await;
    }

    /// Tells that a waiter was granted the lock whose number nobody here has.
    fn was_granted(&self, number: u64) {
        if let Some(granted) = self.tokens().get(&kept_in_numbers(number)) {
            granted.store(true, Ordering::Release);
            self.granted.notify_one();
        }
    }

    fn tokens(&self) -> MutexGuard<'_, HashMap<u32, Arc<AtomicBool>>> {
        self.tokens.lock()
    }
}

/// The half of a token's bits that a waiter's number has, too: see [`Waiters::join`]. Who is taken
/// for another one is released once more, which harms nobody that was given up.
fn kept_in_numbers(bits: u64) -> u32 {
    (bits >> 32) as u32
}

/// The half of a lock's number that is kept. Two locks that share it have each other's waiters ask
/// in vain.
fn half_of(lock: u64) -> u32 {
    lock as u32
}

impl AbandonedToken {
    /// Whether the token was granted the lock since this was asked last.
    pub(crate) fn was_granted(&self) -> bool {
        self.granted.swap(false, Ordering::AcqRel)
    }
}

impl Drop for AbandonedToken {
    fn drop(&mut self) {
        self.gone.tokens().remove(&self.bits);
    }
}

#[derive(Debug, Default)]
struct Entry {
    slot: u16,
    /// Half of its number, enough to tell locks from each other.
    lock: u32,
    /// Grows from one who waits to the next.
    order: u64,
    number: u64,
    received: Mutex<Heard>,
}

/// What was said to a waiter.
#[derive(Debug, Default)]
enum Heard {
    #[default]
    Nothing,
    /// Nothing, and it is to be woken.
    Awaited(Waker),
    /// What it does not know yet.
    Signal(Signal),
}

/// What a waiter hears.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// It has the lock. Boxed, as of all who wait one has it.
    Granted(Box<HandOff>),
    /// What was said since the last question may be lost: ask again.
    Unknown,
}

/// A lock that was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HandOff {
    /// When it was heard of.
    pub(crate) received: Moment,
    /// By which connection.
    pub(crate) connection: u64,
    /// When it was done, in microseconds of the server.
    pub(crate) at: u64,
    /// For how long.
    pub(crate) ttl: Duration,
    pub(crate) fence: Option<Fence>,
}

/// What the server said about its clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// When the question was sent.
    pub(crate) sent: Moment,
    /// By which connection, if that is known.
    pub(crate) connection: Option<NonZeroU64>,
    /// What the server's clock showed when it answered, in microseconds.
    pub(crate) server: u64,
}

impl HandOff {
    /// From when on the lease counts that this brought; `None` when it is older than the sample,
    /// whose answer knew better, or was told by another server, whose clock shows something else.
    ///
    /// The server's clock gives how long after the sample the handover was; with the drift taken
    /// off, and never after the message was heard. A message that came late is worth less by as
    /// much, where counting from its receipt would believe in a dead lock.
    pub(crate) fn counts_from(&self, sample: Sample) -> Option<Moment> {
        if sample.connection.is_none_or(|known| known.get() != self.connection) {
            return None;
        }
        let later = Duration::from_micros(self.at.checked_sub(sample.server)?);
        Some(sample.sent.after(later - later / 100).min(self.received))
    }
}

/// One waiter's number; dropping it leaves.
#[derive(Debug)]
pub(crate) struct Waiter {
    waiters: Arc<Waiters>,
    entry: Arc<Entry>,
}

impl Waiters {
    /// One waiter more, for a key in `slot`; `lock` is a number that tells keys from each other.
    ///
    /// Its number is of the random bits of its token, so that a grant to another process is never
    /// taken for its own, and is another one when it waits again.
    pub(crate) fn join(self: &Arc<Self>, slot: u16, lock: u64, bits: u64) -> Waiter {
        let order = self.last.fetch_add(1, Ordering::Relaxed);
        let number = bits ^ order;
        let lock = half_of(lock);
        let entry = Arc::new(Entry { slot, lock, order, number, ..Entry::default() });
        self.entries().insert(number, Arc::clone(&entry));
        Waiter { waiters: Arc::clone(self), entry }
    }

    /// Waiters of their own, who know of the same tokens that were given up.
    pub(crate) fn apart(&self) -> Self {
        Self { gone: Arc::clone(&self.gone), ..Self::default() }
    }

    /// Passes a grant on, and tells whether somebody was there for it. One that nobody waits for
    /// any more is given back by who releases what was given up.
    pub(crate) fn grant(&self, number: u64, hand_off: HandOff) -> bool {
        let entry = self.entries().get(&number).map(Arc::clone);
        if let Some(entry) = &entry {
            entry.tell(Signal::Granted(Box::new(hand_off)));
        } else if !hand_off.ttl.is_zero() {
            self.gone.was_granted(number);
        }
        entry.is_some()
    }

    pub(crate) fn are_none(&self) -> bool {
        self.entries().is_empty()
    }

    /// Has one ask again.
    pub(crate) fn alarm(&self, number: u64) {
        if let Some(entry) = self.entries().get(&number) {
            entry.tell(Signal::Unknown);
        }
    }

    /// Has everybody ask again who waits in one of these slots.
    pub(crate) fn alarm_where(&self, slots: impl Fn(u16) -> bool) {
        for entry in self.entries().values().filter(|entry| slots(entry.slot)) {
            entry.tell(Signal::Unknown);
        }
    }

    /// Has those ask again who have waited for a lock for longest: one of them is first in line.
    pub(crate) fn alarm_first(&self, lock: u64) {
        let entries = self.entries();
        let mut here: Vec<_> =
            entries.values().filter(|entry| entry.lock == half_of(lock)).collect();
        here.sort_unstable_by_key(|entry| entry.order);
        here.into_iter().take(FIRST).for_each(|entry| entry.tell(Signal::Unknown));
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<u64, Arc<Entry>>> {
        self.entries.lock()
    }
}

impl Entry {
    fn tell(&self, signal: Signal) {
        let mut received = self.received();
        // A grant is not forgotten for an alarm.
        if matches!((&*received, &signal), (Heard::Signal(Signal::Granted(_)), Signal::Unknown)) {
            return;
        }
        let before = mem::replace(&mut *received, Heard::Signal(signal));
        drop(received);
        if let Heard::Awaited(waker) = before {
            waker.wake();
        }
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Signal> {
        let mut received = self.received();
        *received = Heard::Awaited(match mem::take(&mut *received) {
            Heard::Signal(signal) => return Poll::Ready(signal),
            Heard::Awaited(waker) if waker.will_wake(cx.waker()) => waker,
            Heard::Awaited(_) | Heard::Nothing => cx.waker().clone(),
        });
        Poll::Pending
    }

    fn received(&self) -> MutexGuard<'_, Heard> {
        self.received.lock()
    }
}

impl Waiter {
    pub(crate) fn number(&self) -> u64 {
        self.entry.number
    }

    /// The slot in which it waits.
    pub(crate) fn slot(&self) -> u16 {
        self.entry.slot
    }

    /// Waits for news. Who asks last hears them.
    pub(crate) fn signal(&self) -> impl Future<Output = Signal> {
        poll_fn(|cx| self.entry.poll(cx))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.waiters.entries().remove(&self.number());
    }
}

/// Since when the head has found a foreign client holding the lock.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Foreign(Option<Moment>);

impl Foreign {
    /// Takes note of an answer to who has that rank; tells after how long to ask again, if that is
    /// to be soon.
    ///
    /// It is asked at multiples of a step from the first such answer on, and up to a fifth of it
    /// later, by `jitter` (0 to 1): so whoever polls as seldom as the last step would find it free
    /// no earlier.
    pub(crate) fn tick(
        &mut self,
        rank: u32,
        foreign: bool,
        now: Moment,
        jitter: f64,
    ) -> Option<Duration> {
        if rank > 0 || !foreign {
            self.0 = None;
            return None;
        }
        let passed = now.since(*self.0.get_or_insert(now));
        let (step, _) = FOREIGN.into_iter().find(|(_, until)| passed < *until)?;
        let over = Duration::from_nanos((passed.as_nanos() % step.as_nanos()) as u64);
        let pause = step - over;
        // An answer that takes long is not followed by a question at once.
        let pause = if pause < step / 4 { pause + step } else { pause };
        Some(pause + (step / 5).mul_f64(jitter.clamp(0.0, 1.0)))
    }
}

/// How long to wait for news before asking again: by the place in line, what is left of the
/// holder's lease, and whether grants can be heard. `jitter` (0 to 1) spreads it by ± 20 %.
pub(crate) fn tick(rank: u32, left: Option<Duration>, received: bool, jitter: f64) -> Duration {
    if left == Some(Duration::ZERO) {
        // Nobody holds it: more dead ones are in front than are passed at once.
        return TICK_MIN;
    }
    let tick = if received { TICK } else { TICK.min(TICK_UNHEARD * rank.saturating_add(1)) };
    let tick = tick.mul_f64(0.8 + 0.4 * jitter.clamp(0.0, 1.0));
    let expiry = left.filter(|_| rank < HEIRS).map(|left| left + TICK_MIN * (rank + 1));
    expiry.map_or(tick, |expiry| tick.min(expiry)).max(TICK_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn hand_off(heard_ms: u64, at_ms: u64) -> HandOff {
        let received = Moment::at(ms(heard_ms));
        HandOff { received, connection: 1, at: at_ms * 1_000, ttl: ms(5_000), fence: None }
    }

    #[test]
    fn a_handover_counts_by_the_server_and_never_from_after_its_receipt() {
        let (sent, connection) = (Moment::at(ms(1_000)), NonZeroU64::new(1));
        let sample = Sample { sent, connection, server: 70_000_000 };
        // A second after the sample on the server's clock; the message took four.
        let late = hand_off(6_000, 71_000);
        assert_eq!(late.counts_from(sample), Some(Moment::at(ms(1_990))));
        // The server's clock has jumped ahead.
        let ahead = hand_off(1_500, 99_000);
        assert_eq!(ahead.counts_from(sample), Some(Moment::at(ms(1_500))));
        // It was on its way while the question was answered.
        let stale = hand_off(1_500, 69_999);
        assert_eq!(stale.counts_from(sample), None);
    }

    #[test]
    fn a_handover_does_not_count_by_the_clock_of_another_server() {
        let sample =
            |connection| Sample { sent: Moment::at(ms(0)), connection, server: 70_000_000 };
        let (known, received) = (NonZeroU64::new, hand_off(1_000, 70_900));
        assert_eq!(received.counts_from(sample(known(1))), Some(Moment::at(ms(891))));
        for other in [known(2), None] {
            assert_eq!(received.counts_from(sample(other)), None, "{other:?}");
        }
    }

    #[test]
    fn the_first_in_line_ask_when_the_lock_expires() {
        assert_eq!(tick(0, Some(ms(300)), true, 0.5), ms(302));
        assert_eq!(tick(1, Some(ms(300)), true, 0.5), ms(304));
        assert_eq!(tick(3, Some(ms(300)), true, 0.5), TICK);
        assert_eq!(tick(0, Some(ms(60_000)), true, 0.5), TICK);
        assert_eq!(tick(0, None, true, 0.0), ms(1_600));
        assert_eq!(tick(0, None, false, 0.5), ms(100));
        assert_eq!(tick(9, None, false, 0.5), ms(1_000));
        assert_eq!(tick(u32::MAX, None, false, 0.5), TICK);
        assert_eq!(tick(9_000, Some(Duration::ZERO), true, 0.5), TICK_MIN);
    }

    #[test]
    fn the_head_asks_often_while_a_foreign_client_holds_the_lock() {
        let mut foreign = Foreign::default();
        let mut tick = |rank, is_foreign, at, jitter| {
            foreign.tick(rank, is_foreign, Moment::at(ms(at)), jitter)
        };
        assert_eq!(tick(1, true, 1_000, 0.5), None);
        assert_eq!(tick(0, false, 1_000, 0.5), None);
        assert_eq!(tick(0, true, 1_007, 0.0), Some(ms(25)));
        assert_eq!(tick(0, true, 1_033, 0.0), Some(ms(24)));
        assert_eq!(tick(0, true, 1_037, 1.0), Some(ms(25)));
        assert_eq!(tick(0, true, 1_055, 0.0), Some(ms(27)));
        assert_eq!(tick(0, true, 3_017, 1.0), Some(ms(50)));
        assert_eq!(tick(0, true, 60_020, 0.0), Some(ms(87)));
        assert_eq!(tick(0, false, 60_020, 0.0), None);
        assert_eq!(tick(0, true, 60_030, 0.0), Some(ms(25)));
    }

    #[tokio::test]
    async fn a_grant_is_heard_even_when_an_alarm_comes_after_it() {
        let waiters = Arc::new(Waiters::default());
        let waiter = waiters.join(7, 0, 1);
        waiters.grant(waiter.number(), hand_off(0, 0));
        waiters.alarm_where(|slot| slot == 7);
        assert_eq!(waiter.signal().await, Signal::Granted(Box::new(hand_off(0, 0))));
    }

    #[tokio::test]
    async fn an_alarm_is_for_its_slots() {
        let waiters = Arc::new(Waiters::default());
        let (one, other) = (waiters.join(1, 0, 1), waiters.join(2, 0, 7));
        waiters.alarm_where(|slot| slot == 2);
        assert_eq!(other.signal().await, Signal::Unknown);
        assert!(futures::poll!(std::pin::pin!(one.signal())).is_pending());
    }

    #[tokio::test]
    async fn the_first_of_a_lock_are_alarmed() {
        let waiters = Arc::new(Waiters::default());
        let join = |nth: u64| waiters.join(7, nth & 1, nth.wrapping_mul(u64::MAX / 7));
        let all: Vec<_> = (0..4 * FIRST as u64).map(join).collect();
        waiters.alarm_first(0);
        for (nth, waiter) in all.iter().enumerate() {
            let receives = futures::poll!(std::pin::pin!(waiter.signal())).is_ready();
            assert_eq!(receives, nth % 2 == 0 && nth < 2 * FIRST, "{nth}");
        }
    }

    #[tokio::test]
    async fn a_grant_to_who_was_given_up_is_told_to_who_releases_it() {
        let waiters = Arc::new(Waiters::default());
        let (bits, other) = (0x1234_5678_0000_0000, 0x8765_4321_0000_0000);
        let number = {
            let waiter = waiters.join(7, 0, bits);
            waiters.grant(waiter.number(), hand_off(0, 0));
            waiter.number()
        };
        let gone = waiters.apart().gone.given_up(bits);
        let mut granted = std::pin::pin!(Arc::clone(&waiters.gone).granted());
        waiters.grant(other, hand_off(0, 0));
        assert!(futures::poll!(&mut granted).is_pending() && !gone.was_granted());
        assert!(!waiters.grant(number, hand_off(0, 0)));
        granted.await;
        assert!(gone.was_granted() && !gone.was_granted());
        drop(gone);
        assert!(waiters.gone.tokens().is_empty());
    }

    #[test]
    fn a_place_is_small() {
        assert!(size_of::<Entry>() <= 96, "{}", size_of::<Entry>());
    }

    #[test]
    fn who_has_left_is_forgotten() {
        let waiters = Arc::new(Waiters::default());
        drop(waiters.join(0, 0, 1));
        assert!(waiters.entries().is_empty());
    }
}
