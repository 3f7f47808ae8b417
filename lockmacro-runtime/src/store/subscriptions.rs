//! The subscriptions of one process: a grant is pushed to the first waiter of a queue, so waiters
//! do not poll. A waiter repeats its request now and then, because a push may not arrive.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use crate::sys::random::{self, HashMap};
use crate::sys::sync::Mutex;
use crate::sys::time::Moment;
use crate::value::fence::FenceBlock;

/// Digits of a waiter's number in its id, as in `queue.lua`.
pub(crate) const NUMBER_DIGITS: usize = 20;

/// The subscriptions of one connection, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    last: AtomicU64,
    inboxes: Mutex<HashMap<u64, Arc<Inbox>>>,
    abandoned: Arc<AbandonedTokens>,
}

#[derive(Debug, Default)]
struct Inbox {
    slot: u16,
    number: u64,
    /// The secret of the last request, until a grant with it has arrived.
    secret: Mutex<Option<u64>>,
    received: Mutex<Received>,
}

/// The state of a waiter's signal.
#[derive(Debug, Default)]
enum Received {
    #[default]
    Nothing,
    /// Nothing yet; the waiter's task waits for it.
    Awaited(Waker),
    /// A signal that the waiter has not taken yet.
    Signal(Signal),
}

/// A signal to a waiter.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// It has the lock. Boxed, because only one of all waiters has it.
    Granted(Box<HandOff>),
    /// A push since the last request may not have arrived: the waiter has to repeat its request.
    Unknown,
}

/// A lock that was handed off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HandOff {
    /// When the push was received.
    pub(crate) received: Moment,
    /// The connection that received it.
    pub(crate) connection: u64,
    /// When the lock was handed off, in microseconds of the server's clock.
    pub(crate) at: u64,
    /// The ttl until the lock is confirmed.
    pub(crate) ttl: Duration,
    pub(crate) fences: Option<FenceBlock>,
}

/// A waiter's registration for a push; dropping it removes the registration.
#[derive(Debug)]
pub(crate) struct Subscription {
    subscriptions: Arc<Subscriptions>,
    inbox: Arc<Inbox>,
}

impl Subscriptions {
    /// Adds a subscription for a key in `slot`.
    ///
    /// The waiter's number is made of the random bits of its token, so that a grant to another
    /// process is never mistaken for its own. A waiter that waits again has another number.
    pub(crate) fn join(self: &Arc<Self>, slot: u16, bits: u64) -> Subscription {
        let order = self.last.fetch_add(1, Ordering::Relaxed);
        let number = bits ^ order;
        let inbox = Arc::new(Inbox { slot, number, ..Inbox::default() });
        self.inboxes.lock().insert(number, Arc::clone(&inbox));
        Subscription { subscriptions: Arc::clone(self), inbox }
    }

    /// Another set of subscriptions, with the same abandoned tokens.
    pub(crate) fn apart(&self) -> Self {
        Self { abandoned: Arc::clone(&self.abandoned), ..Self::default() }
    }

    /// Passes on a grant that anybody may have sent who may publish: only the first one with the
    /// secret of the waiter's last request counts. Any other makes the waiter repeat its request.
    /// The lock of a waiter that is gone is released by the task that releases abandoned tokens.
    pub(crate) fn grant(&self, number: u64, secret: u64, hand_off: HandOff) {
        let inbox = self.inboxes.lock().get(&number).map(Arc::clone);
        match inbox {
            // Taken, so that a push which arrives twice counts once.
            Some(inbox) if inbox.secret.lock().take_if(|own| *own == secret).is_some() => {
                inbox.signal(Signal::Granted(Box::new(hand_off)));
            }
            Some(inbox) => inbox.signal(Signal::Unknown),
            None if hand_off.ttl.is_zero() => {}
            None => {
                if let Some(granted) = self.abandoned.lock().get(&half_in_numbers(number)) {
                    granted.notify_one();
                }
            }
        }
    }

    /// Records from now on whether the token with these random bits is granted its lock.
    pub(crate) fn abandon(&self, bits: u64) -> AbandonedToken {
        let bits = half_in_numbers(bits);
        let granted = Arc::clone(self.abandoned.lock().entry(bits).or_default());
        AbandonedToken { all: Arc::clone(&self.abandoned), bits, granted }
    }

    /// Makes one waiter repeat its request. Returns whether there is one.
    pub(crate) fn alarm(&self, number: u64) -> bool {
        self.alarm_later(number, &mut Alarms::default())
    }

    /// The same once the alarms are dropped, for a caller that holds a mutex.
    pub(crate) fn alarm_later(&self, number: u64, alarms: &mut Alarms) -> bool {
        let inbox = self.inboxes.lock().get(&number).map(Arc::clone);
        let is_there = inbox.is_some();
        alarms.0.extend(inbox);
        is_there
    }

    /// Makes every waiter in one of these slots repeat its request.
    pub(crate) fn alarm_where(&self, slots: impl Fn(u16) -> bool) {
        let inboxes = self.inboxes.lock();
        let alarms = inboxes.values().filter(|inbox| slots(inbox.slot)).cloned();
        let alarms = Alarms(alarms.collect());
        drop(inboxes);
        drop(alarms);
    }
}

/// Waiters that repeat their requests when this is dropped. That must be without a mutex: a waker
/// runs code of the program, which may drop a waiter or ask for a lock.
#[derive(Debug, Default)]
pub(crate) struct Alarms(Vec<Arc<Inbox>>);

impl Drop for Alarms {
    fn drop(&mut self) {
        self.0.iter().for_each(|inbox| inbox.signal(Signal::Unknown));
    }
}

impl Inbox {
    fn signal(&self, signal: Signal) {
        let mut received = self.received.lock();
        // An alarm does not replace a grant.
        if matches!((&*received, &signal), (Received::Signal(Signal::Granted(_)), Signal::Unknown))
        {
            return;
        }
        let before = mem::replace(&mut *received, Received::Signal(signal));
        drop(received);
        // Without the mutex, as a waker may run code that drops the subscription.
        if let Received::Awaited(waker) = before {
            waker.wake();
        }
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Signal> {
        // Cloned, and the one before dropped, without the mutex: both may run code of an executor.
        let waker = cx.waker().clone();
        let mut received = self.received.lock();
        let has_signal = matches!(*received, Received::Signal(_));
        let next = if has_signal { Received::Nothing } else { Received::Awaited(waker) };
        let before = mem::replace(&mut *received, next);
        drop(received);
        match before {
            Received::Signal(signal) => Poll::Ready(signal),
            Received::Awaited(_) | Received::Nothing => Poll::Pending,
        }
    }
}

impl Subscription {
    pub(crate) fn number(&self) -> u64 {
        self.inbox.number
    }

    /// The id for one request, see `queue.lua`: its number, and a new secret, so that no push to an
    /// earlier request tells anything about it. Where the system has no random bits, the id has no
    /// secret, and a push makes the waiter repeat its request.
    pub(crate) fn next_id(&self) -> String {
        let number = self.number();
        let secret = random::secret().ok().map(|bits| bits as u64);
        // Before the request is sent, which may be granted at once.
        *self.inbox.secret.lock() = secret;
        let secret = secret.map(|secret| format!("{secret:020}")).unwrap_or_default();
        format!("{number:020}{secret}")
    }

    /// The slot of the key that it waits for.
    pub(crate) fn slot(&self) -> u16 {
        self.inbox.slot
    }

    /// Waits for the next signal. Of several such futures, the one that was polled last gets it.
    pub(crate) fn signal(&self) -> impl Future<Output = Signal> {
        poll_fn(|cx| self.inbox.poll(cx))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.subscriptions.inboxes.lock().remove(&self.number());
    }
}

/// Abandoned tokens, each with what is notified when it was granted its lock. They may still be in
/// a queue, or get there: a request with one may still arrive.
type AbandonedTokens = Mutex<HashMap<u32, Arc<Notify>>>;

/// An abandoned token; dropping this forgets it.
#[derive(Debug)]
pub(crate) struct AbandonedToken {
    all: Arc<AbandonedTokens>,
    bits: u32,
    granted: Arc<Notify>,
}

/// The half of a token's bits that is in its waiter's numbers as well: see [`Subscriptions::join`].
/// A token that is mistaken for another one is released once more, which does no harm to an
/// abandoned one.
fn half_in_numbers(bits: u64) -> u32 {
    (bits >> 32) as u32
}

impl AbandonedToken {
    /// Waits until the token is granted the lock, or was since the last call.
    pub(crate) async fn granted(&self) {
        self.granted.notified().await;
    }
}

impl Drop for AbandonedToken {
    fn drop(&mut self) {
        self.all.lock().remove(&self.bits);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    fn hand_off() -> HandOff {
        let received = Moment::at(Duration::ZERO);
        let ttl = Duration::from_secs(5);
        HandOff { received, connection: 1, at: 0, ttl, fences: None }
    }

    /// The secret of the waiter's next request.
    fn next_secret(subscription: &Subscription) -> u64 {
        subscription.next_id()[NUMBER_DIGITS..].parse().unwrap()
    }

    #[tokio::test]
    async fn a_grant_is_received_even_when_an_alarm_follows_it() {
        let subscriptions = Arc::new(Subscriptions::default());
        let subscription = subscriptions.join(7, 1);
        subscriptions.grant(subscription.number(), next_secret(&subscription), hand_off());
        subscriptions.alarm_where(|slot| slot == 7);
        assert_eq!(subscription.signal().await, Signal::Granted(Box::new(hand_off())));
    }

    #[tokio::test]
    async fn a_grant_counts_once_and_by_the_secret_of_the_last_request_only() {
        let subscriptions = Arc::new(Subscriptions::default());
        let subscription = subscriptions.join(7, 1);
        let number = subscription.number();
        let earlier = next_secret(&subscription);
        let last = next_secret(&subscription);
        for forged in [earlier, last ^ 1, number, 0] {
            subscriptions.grant(number, forged, hand_off());
            assert_eq!(subscription.signal().await, Signal::Unknown);
        }
        let longer = HandOff { ttl: Duration::from_secs(60), ..hand_off() };
        subscriptions.grant(number, last, hand_off());
        // Everybody knows the secret by now.
        subscriptions.grant(number, last, longer);
        assert_eq!(subscription.signal().await, Signal::Granted(Box::new(hand_off())));
        subscriptions.grant(number, last, longer);
        assert_eq!(subscription.signal().await, Signal::Unknown);
    }

    #[tokio::test]
    async fn an_alarm_reaches_its_slots_only() {
        let subscriptions = Arc::new(Subscriptions::default());
        let one = subscriptions.join(1, 1);
        let other = subscriptions.join(2, 7);
        subscriptions.alarm_where(|slot| slot == 2);
        assert_eq!(other.signal().await, Signal::Unknown);
        assert!(futures::poll!(std::pin::pin!(one.signal())).is_pending());
    }

    #[tokio::test]
    async fn a_grant_to_an_abandoned_token_wakes_the_job_that_releases_it() {
        let subscriptions = Arc::new(Subscriptions::default());
        let bits = 0x1234_5678_0000_0000;
        let other = 0x8765_4321_0000_0000;
        let number = {
            let subscription = subscriptions.join(7, bits);
            subscriptions.grant(subscription.number(), next_secret(&subscription), hand_off());
            subscription.number()
        };
        let token = subscriptions.apart().abandon(bits);
        subscriptions.grant(other, 0, hand_off());
        assert!(futures::poll!(std::pin::pin!(token.granted())).is_pending());
        subscriptions.grant(number, 0, hand_off());
        token.granted().await;
        assert!(futures::poll!(std::pin::pin!(token.granted())).is_pending(), "it was told");
        drop(token);
        assert!(subscriptions.abandoned.lock().is_empty());
    }

    /// What a waker of an executor may do, in its wake or its drop.
    struct Acting<F: Fn() + Send + Sync + 'static>(F);

    impl<F: Fn() + Send + Sync + 'static> Wake for Acting<F> {
        fn wake(self: Arc<Self>) {}
    }

    impl<F: Fn() + Send + Sync + 'static> Drop for Acting<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }

    /// Fails where `act` waits for itself.
    fn ends(act: impl FnOnce() + Send + 'static) {
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            act();
            done.send(()).expect("it is waited for");
        });
        is_done.recv_timeout(Duration::from_secs(10)).expect("no deadlock");
    }

    fn poll_with(subscription: &Subscription, waker: Waker) -> Poll<Signal> {
        let signal = std::pin::pin!(subscription.signal());
        signal.poll(&mut Context::from_waker(&waker))
    }

    /// As one that drops the task of another waiter.
    #[test]
    fn a_waker_may_drop_a_waiter_while_all_are_alarmed() {
        ends(|| {
            let subscriptions = Arc::new(Subscriptions::default());
            let [woken, dropped] = [1, 2].map(|bits| subscriptions.join(7, bits));
            let dropped = Mutex::new(Some(dropped));
            let waker = Waker::from(Arc::new(Acting(move || drop(dropped.lock().take()))));
            assert!(poll_with(&woken, waker).is_pending());
            subscriptions.alarm_where(|slot| slot == 7);
            assert_eq!(subscriptions.inboxes.lock().len(), 1);
        });
    }

    #[test]
    fn a_waker_may_alarm_its_waiter_when_another_one_takes_its_place() {
        ends(|| {
            let subscriptions = Arc::new(Subscriptions::default());
            let subscription = subscriptions.join(7, 1);
            let all = Arc::clone(&subscriptions);
            let number = subscription.number();
            let waker = Waker::from(Arc::new(Acting(move || assert!(all.alarm(number)))));
            assert!(poll_with(&subscription, waker).is_pending());
            assert!(poll_with(&subscription, Waker::noop().clone()).is_pending());
            assert_eq!(
                poll_with(&subscription, Waker::noop().clone()),
                Poll::Ready(Signal::Unknown)
            );
        });
    }

    #[test]
    fn an_inbox_is_small() {
        assert!(size_of::<Inbox>() <= 80, "{}", size_of::<Inbox>());
    }

    #[test]
    fn a_dropped_subscription_is_removed() {
        let subscriptions = Arc::new(Subscriptions::default());
        drop(subscriptions.join(0, 1));
        assert!(subscriptions.inboxes.lock().is_empty());
    }
}
