//! The channels of a connection, and the subscriptions that its pushes are for: a grant arrives as
//! a push on a channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};

use crate::store::remote::error::RemoteError;
use crate::store::remote::singleflight::SingleFlight;
use crate::store::subscriptions::Subscriptions;
use crate::sys::random::{HashMap, random_name};
use crate::sys::sync::Mutex;
use crate::sys::time::Instant;
use crate::value::companion;

mod subscribe;

/// The channels that one connection receives.
pub(crate) struct Channels {
    /// Unique in this process.
    pub(crate) number: u64,
    pub(crate) grants: Arc<Grants>,
    /// By their slots.
    channels: Mutex<HashMap<u16, Channel>>,
    /// The server refuses the channels.
    refuses: AtomicBool,
    /// Replies can no longer be matched to their commands.
    desynchronized: AtomicBool,
}

/// The channel of a slot, or the only one.
struct Channel {
    used: Instant,
    received: bool,
    subscribing: Arc<SingleFlight<Result<bool, RemoteError>>>,
}

impl Channels {
    pub(crate) fn new(grants: &Arc<Grants>) -> Arc<Self> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        Arc::new(Self {
            number,
            grants: Arc::clone(grants),
            channels: Default::default(),
            refuses: Default::default(),
            desynchronized: Default::default(),
        })
    }

    /// Whether grants in this slot are received. Otherwise returns the single flight for the
    /// subscription, which takes at most `limit`.
    fn receives(
        &self,
        slot: u16,
        limit: Duration,
    ) -> Result<bool, Arc<SingleFlight<Result<bool, RemoteError>>>> {
        if self.refuses.load(Ordering::Acquire) {
            return Ok(false);
        }
        let used = Instant::now();
        let new =
            || Channel { used, received: false, subscribing: Arc::new(SingleFlight::new(limit)) };
        let mut channels = self.channels.lock();
        let channel = channels.entry(slot).or_insert_with(new);
        channel.used = used;
        if channel.received { Ok(true) } else { Err(Arc::clone(&channel.subscribing)) }
    }

    /// Notes that grants in this slot are received.
    fn opened(&self, slot: u16) {
        if let Some(channel) = self.channels.lock().get_mut(&slot) {
            channel.received = true;
        }
    }

    /// Ends the subscriptions in flight.
    pub(crate) fn abort(&self) {
        self.channels.lock().values().for_each(|channel| channel.subscribing.abort());
    }

    /// Notes that the server refuses the channels, for as long as the connection lasts.
    pub(crate) fn refused(&self) {
        self.refuses.store(true, Ordering::Release);
    }

    /// The number of channels that nobody has asked for within the last `time`.
    fn count_idle(&self, time: Duration) -> usize {
        let is_idle = |channel: &&Channel| channel.received && channel.used.elapsed() >= time;
        self.channels.lock().values().filter(is_idle).count()
    }

    /// Makes all waiters of this connection ask again.
    pub(crate) fn alarm(&self) {
        let mut slots: Vec<u16> = self.channels.lock().keys().copied().collect();
        slots.sort_unstable();
        self.grants.interrupted(&slots);
    }

    /// Whether the replies on this connection can no longer be trusted.
    ///
    /// A server that moves a slot away ends the subscriptions there with a push. The `redis` crate
    /// reads that push as the reply to the oldest command, and each later reply as that of the
    /// command before. A lock that was granted to another client could then be believed to be ours.
    ///
    /// The crate passes the push on before it reads it as a reply. A caller that checks this after
    /// a reply therefore sees it in time.
    pub(crate) fn is_desynchronized(&self) -> bool {
        self.desynchronized.load(Ordering::Acquire)
    }

    /// Receives a push.
    pub(crate) fn push(&self, push: &PushInfo) {
        match (&push.kind, push.data.as_slice()) {
            (PushKind::Message | PushKind::SMessage, [_, Value::BulkString(grant)]) => {
                self.grants.subscriptions.receive(grant, self.number);
            }
            (PushKind::Disconnection, _) => self.alarm(),
            // The client never unsubscribes, because the confirmation would look like this push.
            (PushKind::Unsubscribe | PushKind::PUnsubscribe | PushKind::SUnsubscribe, _) => {
                self.desynchronized.store(true, Ordering::Release);
                self.alarm();
            }
            _ => {}
        }
    }
}

/// The subscriptions to grants, and the channels that the grants arrive on.
pub(crate) struct Grants {
    pub(crate) subscriptions: Arc<Subscriptions>,
    /// What all channels of the managers with one `key_prefix` begin with, so that a user may be
    /// given those alone.
    prefix: Arc<str>,
    name: String,
    /// Whether each slot has its own channel, as in a cluster; a channel belongs to its slot.
    pub(crate) by_slot: bool,
}

impl Grants {
    pub(crate) fn new(by_slot: bool, key_prefix: &str) -> Arc<Self> {
        // A `|` ends the channel in a record, see queue.lua.
        let prefix = key_prefix.replace('%', "%25").replace('|', "%7C");
        Self::of(Arc::default(), by_slot, prefix.into())
    }

    /// The same for other connections.
    pub(crate) fn apart(&self) -> Arc<Self> {
        Self::of(Arc::new(self.subscriptions.apart()), self.by_slot, Arc::clone(&self.prefix))
    }

    fn of(subscriptions: Arc<Subscriptions>, by_slot: bool, prefix: Arc<str>) -> Arc<Self> {
        let name = format!("{:032x}", random_name());
        Arc::new(Self { subscriptions, prefix, name, by_slot })
    }

    /// The pattern of the channels that managers with this `key_prefix` use, as `ACL SETUSER` takes
    /// it.
    pub(crate) fn pattern(&self) -> String {
        let slot = if self.by_slot && !self.prefix.is_empty() { "{*}:" } else { "" };
        format!("&lm1:{slot}{}*", self.prefix)
    }

    /// The channel of a slot, or the only one.
    pub(crate) fn channel(&self, slot: u16) -> String {
        let name = [&*self.prefix, &self.name].concat();
        if self.by_slot { companion::channel(slot, &name) } else { format!("lm1:{name}") }
    }

    /// Notes that messages may be missed: those of these slots, in ascending order, or all where
    /// there is one channel.
    pub(crate) fn interrupted(&self, slots: &[u16]) {
        self.subscriptions.alarm_where(|slot| !self.by_slot || slots.binary_search(&slot).is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    #[test]
    fn replies_are_not_trusted_after_a_subscription_was_ended() {
        let channels = Channels::new(&Grants::new(true, ""));
        let push = |kind| PushInfo { kind, data: vec![Value::Nil, Value::Int(0)] };
        channels.push(&push(PushKind::SSubscribe));
        assert!(!channels.is_desynchronized());
        channels.push(&push(PushKind::SUnsubscribe));
        assert!(channels.is_desynchronized());
    }

    #[tokio::test(start_paused = true)]
    async fn a_channel_that_nobody_asks_for_is_idle() {
        let channels = Channels::new(&Grants::new(true, ""));
        for slot in [1, 2] {
            assert!(channels.receives(slot, LIMIT).is_err());
            channels.opened(slot);
        }
        assert_eq!(channels.count_idle(LIMIT), 0);
        tokio::time::advance(LIMIT).await;
        assert!(matches!(channels.receives(2, LIMIT), Ok(true)));
        assert_eq!(channels.count_idle(LIMIT), 1);
    }

    #[test]
    fn a_channel_begins_with_the_prefix_and_fits_into_a_record() {
        let grants = |by_slot| Grants::new(by_slot, "a|b%:");
        assert!(grants(false).channel(7).starts_with("lm1:a%7Cb%25:"));
        assert!(grants(false).apart().channel(7).starts_with("lm1:a%7Cb%25:"));
        assert_eq!(grants(false).pattern(), "&lm1:a%7Cb%25:*");
        assert!(grants(true).channel(7).contains("}:a%7Cb%25:"));
        assert_eq!(grants(true).pattern(), "&lm1:{*}:a%7Cb%25:*");
        assert_eq!(Grants::new(true, "").pattern(), "&lm1:*");
    }
}
