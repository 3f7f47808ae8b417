//! Delivery of grants to waiters, as pushes on a channel.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::store::hand_off::HandOff;
use crate::store::redis::client::subscriptions::PushSink;
use crate::store::waiters::{NUMBER_DIGITS, Waiters};
use crate::value::companion;
use crate::value::random::random_name;
use crate::value::time::Moment;

/// The waiters for grants, and the channels that the grants arrive on.
pub(crate) struct Grants {
    pub(crate) waiters: Arc<Waiters>,
    /// What all channels of the managers with one `key_prefix` begin with, so that a user may be
    /// given those alone.
    prefix: Arc<str>,
    name: String,
    /// Whether each slot has its own channel, as in a cluster; a channel belongs to its slot.
    by_slot: bool,
}

impl Grants {
    pub(crate) fn new(by_slot: bool, key_prefix: &str) -> Arc<Self> {
        // A `|` ends the channel in a record, see queue.lua.
        let prefix = key_prefix.replace('%', "%25").replace('|', "%7C");
        Self::of(Arc::default(), by_slot, prefix.into())
    }

    /// The same for other connections.
    pub(crate) fn apart(&self) -> Arc<Self> {
        Self::of(Arc::new(self.waiters.apart()), self.by_slot, Arc::clone(&self.prefix))
    }

    fn of(waiters: Arc<Waiters>, by_slot: bool, prefix: Arc<str>) -> Arc<Self> {
        let name = format!("{:032x}", random_name());
        Arc::new(Self { waiters, prefix, name, by_slot })
    }

    /// The pattern of the channels that managers with this `key_prefix` use, as `ACL SETUSER` takes
    /// it.
    pub(crate) fn pattern(&self) -> String {
        let slot = if self.by_slot && !self.prefix.is_empty() { "{*}:" } else { "" };
        format!("&lm1:{slot}{}*", self.prefix)
    }
}

impl PushSink for Grants {
    fn message(&self, push: &[u8], connection: u64) {
        match read(push, connection) {
            Some(Push::Grant { number, secret, hand_off }) => {
                self.waiters.grant(number, secret, hand_off);
            }
            Some(Push::AskAgain { number }) => {
                self.waiters.alarm(number);
            }
            None => {}
        }
    }

    fn interrupted(&self, slots: &[u16]) {
        self.waiters.alarm_where(|slot| !self.by_slot || slots.binary_search(&slot).is_ok());
    }

    fn channel(&self, slot: u16) -> String {
        let name = [&*self.prefix, &self.name].concat();
        if self.by_slot { companion::channel(slot, &name) } else { format!("lm1:{name}") }
    }

    fn is_by_slot(&self) -> bool {
        self.by_slot
    }
}

impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the name: a client that knows the channel can make waiters ask again.
        f.debug_struct("Grants").field("by_slot", &self.by_slot).finish_non_exhaustive()
    }
}

/// A push to a waiter.
#[derive(Debug, PartialEq, Eq)]
enum Push {
    Grant { number: u64, secret: u64, hand_off: HandOff },
    AskAgain { number: u64 },
}

/// Reads `id|fences|time in microseconds|ttl in milliseconds`, as queue.lua writes it. Without the
/// secret in the id, or with a ttl of 0, the waiter asks again.
fn read(push: &[u8], connection: u64) -> Option<Push> {
    let mut fields = std::str::from_utf8(push).ok()?.splitn(4, '|');
    let id = fields.next()?;
    let (number, secret) = id.split_at_checked(NUMBER_DIGITS).unwrap_or((id, ""));
    let number = number.parse().ok()?;
    let fences = match fields.next()? {
        "0" => None,
        block => Some(block.parse().ok()?),
    };
    let (at, ttl) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let (received, ttl) = (Moment::now(), Duration::from_millis(ttl));
    if secret.is_empty() || ttl.is_zero() {
        return Some(Push::AskAgain { number });
    }
    let (secret, hand_off) =
        (secret.parse().ok()?, HandOff { received, connection, at, ttl, fences });
    Some(Push::Grant { number, secret, hand_off })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_without_the_secret_is_no_grant() {
        let waiters: Arc<Waiters> = Arc::default();
        let id = waiters.join(0, u64::MAX).next_id();
        let (asks, read) =
            (Some(Push::AskAgain { number: u64::MAX }), |push: &str| read(push.as_bytes(), 1));
        assert!(matches!(read(&format!("{id}|0|7|5000")), Some(Push::Grant { .. })));
        assert_eq!(read(&format!("{}|0|7|5000", &id[..NUMBER_DIGITS])), asks);
        assert_eq!(read(&format!("{}|0|7|5000", u64::MAX)), asks);
        // An earlier version of the scripts.
        assert_eq!(read(&format!("{id}|0|7|0")), asks);
        for odd in ["", "|", "1|0|7", "-1|0|7|0", &format!("{id}x|0|7|5000")] {
            assert_eq!(read(odd), None, "{odd}");
        }
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
