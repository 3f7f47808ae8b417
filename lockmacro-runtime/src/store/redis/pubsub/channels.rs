//! Delivery of grants to waiters, as pushes on a channel.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::store::hand_off::HandOff;
use crate::store::redis::client::subscriptions::PushSink;
use crate::store::waiters::Waiters;
use crate::value::companion;
use crate::value::random::random_name;
use crate::value::time::Moment;

/// The waiters for grants, and the channels that the grants arrive on.
pub(crate) struct Grants {
    pub(crate) waiters: Arc<Waiters>,
    name: String,
    /// Whether each slot has its own channel, as in a cluster; a channel belongs to its slot.
    pub(crate) by_slot: bool,
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
        let name = format!("{:032x}", random_name());
        Arc::new(Self { waiters, name, by_slot })
    }

    /// The channel of a slot.
    pub(crate) fn channel(&self, slot: u16) -> String {
        if self.by_slot {
            companion::channel(slot, &self.name)
        } else {
            format!("lm1:{}", self.name)
        }
    }
}

impl PushSink for Grants {
    fn message(&self, grant: &[u8], connection: u64) {
        if let Some((number, hand_off)) = hand_off(grant, connection) {
            self.waiters.grant(number, hand_off);
        }
    }

    fn interrupted(&self, slots: &[u16]) {
        self.waiters.alarm_where(|slot| !self.by_slot || slots.binary_search(&slot).is_ok());
    }

    fn channel(&self, slot: u16) -> String {
        Grants::channel(self, slot)
    }

    fn is_by_slot(&self) -> bool {
        self.by_slot
    }
}

impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the name: a client that knows the channel can send grants.
        f.debug_struct("Grants").field("by_slot", &self.by_slot).finish_non_exhaustive()
    }
}

/// Reads `number|fences|time in microseconds|ttl in milliseconds`, as queue.lua writes it.
fn hand_off(grant: &[u8], connection: u64) -> Option<(u64, HandOff)> {
    let mut fields = std::str::from_utf8(grant).ok()?.splitn(4, '|');
    let number = fields.next()?.parse().ok()?;
    let fences = match fields.next()? {
        "0" => None,
        block => Some(block.parse().ok()?),
    };
    let (at, ttl) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let (received, ttl) = (Moment::now(), Duration::from_millis(ttl));
    Some((number, HandOff { received, connection, at, ttl, fences }))
}
