//! How grants come to who waits: by a channel, on the connection of the commands, or by the answer to a
//! release of the same manager.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};
use tokio::time::Instant;

use crate::store::redis::client::error::Trouble;
use crate::store::redis::client::singleflight::Errand;
use crate::store::redis::pubsub::local_grants::Releases;
use crate::store::waiters::{Handover, Waiters};
use crate::value::companion;
use crate::value::fence::Fence;
use crate::value::time::Moment;

/// Who waits for grants, and where they are sent to: one server, or all nodes of a cluster.
#[derive(Debug)]
pub(crate) struct Grants {
    pub(crate) waiters: Arc<Waiters>,
    name: String,
    /// In a cluster each slot has a channel of its own, which is in the slot.
    pub(crate) by_slot: bool,
    pub(crate) releases: Releases,
}

impl Grants {
    pub(crate) fn new(by_slot: bool) -> Arc<Self> {
        Self::of(Arc::default(), by_slot)
    }

    /// The same for other connections.
    pub(crate) fn apart(&self) -> Arc<Self> {
        Self::of(Arc::new(self.waiters.apart()), self.by_slot)
    }

    fn of(waiters: Arc<Waiters>, by_slot: bool) -> Arc<Self> {
        let name = format!("{:032x}", crate::value::token::chance());
        Arc::new(Self { waiters, name, by_slot, releases: Releases::default() })
    }

    pub(crate) fn channel(&self, slot: u16) -> String {
        if self.by_slot {
            companion::channel(slot, &self.name)
        } else {
            format!("lm1:{}", self.name)
        }
    }
}

/// What is heard by one connection.
pub(crate) struct Channels {
    /// Of no other connection of this process.
    pub(crate) number: u64,
    grants: Arc<Grants>,
    by_slot: Mutex<HashMap<u16, Channel>>,
    /// The server refuses the channels.
    deaf: AtomicBool,
    /// Replies can no longer be told from each other.
    torn: AtomicBool,
}

/// The channel of a slot.
struct Channel {
    used: Instant,
    heard: bool,
    joining: Arc<Errand<Result<bool, Trouble>>>,
}

impl Channels {
    pub(crate) fn new(grants: &Arc<Grants>) -> Arc<Self> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let (by_slot, deaf, torn) = Default::default();
        Arc::new(Self { number, grants: Arc::clone(grants), by_slot, deaf, torn })
    }

    /// Whether each slot has its own, as in a cluster.
    pub(crate) fn are_of_slots(&self) -> bool {
        self.grants.by_slot
    }

    /// Whether grants in this slot are heard; an errand of `limit` at most when that is still to be
    /// seen to.
    pub(crate) fn hears(
        &self,
        slot: u16,
        limit: Duration,
    ) -> Result<bool, Arc<Errand<Result<bool, Trouble>>>> {
        if self.deaf.load(Ordering::Acquire) || !self.grants.by_slot {
            return Ok(!self.deaf.load(Ordering::Acquire));
        }
        let used = Instant::now();
        let new = || Channel { used, heard: false, joining: Arc::new(Errand::new(limit)) };
        let mut channels = self.channels();
        let channel = channels.entry(slot).or_insert_with(new);
        channel.used = used;
        if channel.heard { Ok(true) } else { Err(Arc::clone(&channel.joining)) }
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }

    /// From now on grants in this slot are heard; tells whether they are the first.
    pub(crate) fn opened(&self, slot: u16) -> bool {
        let mut channels = self.channels();
        let first = !channels.values().any(|channel| channel.heard);
        if let Some(channel) = channels.get_mut(&slot) {
            channel.heard = true;
        }
        first
    }

    /// The server refuses the channels, and will go on to.
    pub(crate) fn refused(&self) {
        self.deaf.store(true, Ordering::Release);
    }

    /// Which slots were asked for in the last `time`; `None` when all that are heard were.
    pub(crate) fn wanted(&self, time: Duration) -> Option<Vec<u16>> {
        let channels = self.channels();
        let heard = || channels.iter().filter(|(_, channel)| channel.heard);
        let wanted = |channel: &Channel| channel.used.elapsed() < time;
        if heard().all(|(_, channel)| wanted(channel)) {
            return None;
        }
        Some(heard().filter(|(_, channel)| wanted(channel)).map(|(slot, _)| *slot).collect())
    }

    /// Has everybody ask again who hears by this connection.
    pub(crate) fn alarm(&self) {
        let slots: Vec<u16> = self.channels().keys().copied().collect();
        self.grants.waiters.alarm_where(|slot| !self.grants.by_slot || slots.contains(&slot));
    }

    /// Whether no reply by this connection can be trusted any more.
    ///
    /// A server that gives a slot away ends its subscriptions and says so. The library takes that for
    /// the reply to whatever was asked first, and each later reply for the one before it: a lock that
    /// somebody else was given could be believed to be ours. It passes the push on before it takes
    /// it for a reply, so who looks after a reply came sees this in time.
    pub(crate) fn is_torn(&self) -> bool {
        self.torn.load(Ordering::Acquire)
    }

    /// Passes a grant on.
    pub(crate) fn hear(&self, grant: &[u8]) {
        if let Some((number, handover)) = handover(grant, self.number) {
            self.grants.waiters.grant(number, handover);
        }
    }

    /// Takes what comes without having been asked for.
    pub(crate) fn push(&self, push: &PushInfo) {
        match (&push.kind, push.data.as_slice()) {
            (PushKind::Message | PushKind::SMessage, [_, Value::BulkString(grant)]) => {
                self.hear(grant);
            }
            (PushKind::Disconnection, _) => self.alarm(),
            // We never ask for that, because it could not be told from what was not asked for.
            (PushKind::Unsubscribe | PushKind::PUnsubscribe | PushKind::SUnsubscribe, _) => {
                self.torn.store(true, Ordering::Release);
                self.alarm();
            }
            _ => {}
        }
    }

    fn channels(&self) -> MutexGuard<'_, HashMap<u16, Channel>> {
        // Nothing that runs under this mutex can panic.
        self.by_slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads `number|fence|time in microseconds|ttl in milliseconds`, as queue.lua writes.
fn handover(grant: &[u8], connection: u64) -> Option<(u64, Handover)> {
    let mut fields = std::str::from_utf8(grant).ok()?.splitn(4, '|').map(str::parse::<u64>);
    let mut field = || fields.next()?.ok();
    let (number, fence, at, ttl) = (field()?, field()?, field()?, field()?);
    let fence = Fence::try_from(fence).ok().filter(|_| fence > 0);
    let (heard, ttl) = (Moment::now(), Duration::from_millis(ttl));
    Some((number, Handover { heard, connection, at, ttl, fence }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    #[test]
    fn replies_are_not_trusted_after_a_subscription_was_ended() {
        let channels = Channels::new(&Grants::new(true));
        let push = |kind| PushInfo { kind, data: vec![Value::Nil, Value::Int(0)] };
        channels.push(&push(PushKind::SSubscribe));
        assert!(!channels.is_torn());
        channels.push(&push(PushKind::SUnsubscribe));
        assert!(channels.is_torn());
    }

    #[tokio::test(start_paused = true)]
    async fn a_channel_that_nobody_asks_for_is_not_wanted_for_long() {
        let channels = Channels::new(&Grants::new(true));
        for slot in [1, 2] {
            assert!(channels.hears(slot, LIMIT).is_err());
            assert_eq!(channels.opened(slot), slot == 1);
        }
        assert_eq!(channels.wanted(LIMIT), None);
        tokio::time::advance(LIMIT).await;
        assert!(matches!(channels.hears(2, LIMIT), Ok(true)));
        assert_eq!(channels.wanted(LIMIT), Some(vec![2]));
    }
}
