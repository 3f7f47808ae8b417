//! The subscriptions of a connection, and the receiver of its pushes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};

use crate::store::redis::client::error::CallError;
use crate::store::redis::client::singleflight::SingleFlight;
use crate::value::random::HashMap;
use crate::value::sync::{Mutex, MutexGuard};
use crate::value::time::Instant;

/// Receives what a server sends without a request. Each default is that of a connection without
/// waiters.
pub(crate) trait PushSink: Send + Sync {
    /// Receives a message that arrived on the connection of this number.
    fn message(&self, _message: &[u8], _connection: u64) {}

    /// Notes that messages may be lost: those of these slots, in ascending order, or all where
    /// there is one channel.
    fn interrupted(&self, _slots: &[u16]) {}

    /// The channel of a slot, or the only one.
    fn channel(&self, _slot: u16) -> String {
        String::new()
    }

    /// Whether each slot has its own channel, as in a cluster.
    fn is_by_slot(&self) -> bool {
        true
    }
}

/// Ignores all pushes: for a connection without waiters.
pub(crate) struct NoPushes;

impl NoPushes {
    pub(crate) fn sink() -> Arc<dyn PushSink> {
        Arc::new(Self)
    }
}

impl PushSink for NoPushes {}

/// The channels that one connection receives.
pub(crate) struct Subscriptions {
    /// Unique in this process.
    pub(crate) number: u64,
    sink: Arc<dyn PushSink>,
    by_slot: Mutex<HashMap<u16, Channel>>,
    /// The server refuses the channels.
    refuses: AtomicBool,
    /// Replies can no longer be matched to their commands.
    desynchronized: AtomicBool,
}

/// The channel of a slot, or the only one.
struct Channel {
    used: Instant,
    received: bool,
    subscribing: Arc<SingleFlight<Result<bool, CallError>>>,
}

impl Subscriptions {
    pub(crate) fn new(sink: &Arc<dyn PushSink>) -> Arc<Self> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let (by_slot, refuses, desynchronized) = Default::default();
        Arc::new(Self { number, sink: Arc::clone(sink), by_slot, refuses, desynchronized })
    }

    /// Whether each slot has its own channel, as in a cluster.
    pub(crate) fn are_of_slots(&self) -> bool {
        self.sink.is_by_slot()
    }

    /// Whether grants in this slot are received. Otherwise returns the single flight for the
    /// subscription, which takes at most `limit`.
    pub(crate) fn receives(
        &self,
        slot: u16,
        limit: Duration,
    ) -> Result<bool, Arc<SingleFlight<Result<bool, CallError>>>> {
        if self.refuses.load(Ordering::Acquire) {
            return Ok(false);
        }
        let used = Instant::now();
        let new =
            || Channel { used, received: false, subscribing: Arc::new(SingleFlight::new(limit)) };
        let mut channels = self.channels();
        let channel = channels.entry(slot).or_insert_with(new);
        channel.used = used;
        if channel.received { Ok(true) } else { Err(Arc::clone(&channel.subscribing)) }
    }

    /// Notes that grants in this slot are received.
    pub(crate) fn opened(&self, slot: u16) {
        if let Some(channel) = self.channels().get_mut(&slot) {
            channel.received = true;
        }
    }

    /// Ends the subscriptions in flight.
    pub(crate) fn abort(&self) {
        self.channels().values().for_each(|channel| channel.subscribing.abort());
    }

    /// Notes that the server refuses the channels, for as long as the connection lasts.
    pub(crate) fn refused(&self) {
        self.refuses.store(true, Ordering::Release);
    }

    /// The number of channels that nobody has asked for within the last `time`.
    pub(crate) fn count_idle(&self, time: Duration) -> usize {
        let is_idle = |channel: &&Channel| channel.received && channel.used.elapsed() >= time;
        self.channels().values().filter(is_idle).count()
    }

    /// Makes all waiters of this connection ask again.
    pub(crate) fn alarm(&self) {
        let mut slots: Vec<u16> = self.channels().keys().copied().collect();
        slots.sort_unstable();
        self.sink.interrupted(&slots);
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

    /// Delivers a grant.
    pub(crate) fn receive(&self, grant: &[u8]) {
        self.sink.message(grant, self.number);
    }

    /// Receives a push.
    pub(crate) fn push(&self, push: &PushInfo) {
        match (&push.kind, push.data.as_slice()) {
            (PushKind::Message | PushKind::SMessage, [_, Value::BulkString(grant)]) => {
                self.receive(grant);
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

    fn channels(&self) -> MutexGuard<'_, HashMap<u16, Channel>> {
        self.by_slot.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    #[test]
    fn replies_are_not_trusted_after_a_subscription_was_ended() {
        let channels = Subscriptions::new(&NoPushes::sink());
        let push = |kind| PushInfo { kind, data: vec![Value::Nil, Value::Int(0)] };
        channels.push(&push(PushKind::SSubscribe));
        assert!(!channels.is_desynchronized());
        channels.push(&push(PushKind::SUnsubscribe));
        assert!(channels.is_desynchronized());
    }

    #[tokio::test(start_paused = true)]
    async fn a_channel_that_nobody_asks_for_is_idle() {
        let channels = Subscriptions::new(&NoPushes::sink());
        for slot in [1, 2] {
            assert!(channels.receives(slot, LIMIT).is_err());
            channels.opened(slot);
        }
        assert_eq!(channels.count_idle(LIMIT), 0);
        tokio::time::advance(LIMIT).await;
        assert!(matches!(channels.receives(2, LIMIT), Ok(true)));
        assert_eq!(channels.count_idle(LIMIT), 1);
    }
}
