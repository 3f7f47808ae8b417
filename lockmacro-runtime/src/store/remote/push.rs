//! Pushes to waiters.

use std::time::Duration;

use crate::store::subscriptions::{HandOff, NUMBER_DIGITS, Subscriptions};
use crate::sys::time::Moment;

impl Subscriptions {
    /// Receives a push that arrived on the connection of this number.
    pub(crate) fn receive(&self, push: &[u8], connection: u64) {
        match read(push, connection) {
            Some((number, Some((secret, hand_off)))) => self.grant(number, secret, hand_off),
            Some((number, None)) => {
                self.alarm(number);
            }
            None => {}
        }
    }
}

/// The number of a waiter, and its grant with the secret of its last request. Without a grant the
/// waiter asks again.
type Push = (u64, Option<(u64, HandOff)>);

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
    let at = fields.next()?.parse().ok()?;
    let ttl = fields.next()?.parse().ok()?;
    let received = Moment::now();
    let ttl = Duration::from_millis(ttl);
    if secret.is_empty() || ttl.is_zero() {
        return Some((number, None));
    }
    let hand_off = HandOff { received, connection, at, ttl, fences };
    Some((number, Some((secret.parse().ok()?, hand_off))))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_push_without_the_secret_is_no_grant() {
        let subscriptions: Arc<Subscriptions> = Arc::default();
        let id = subscriptions.join(0, u64::MAX).next_id();
        let asks = Some((u64::MAX, None));
        let read = |push: &str| read(push.as_bytes(), 1);
        assert!(matches!(read(&format!("{id}|0|7|5000")), Some((_, Some(_)))));
        assert_eq!(read(&format!("{}|0|7|5000", &id[..NUMBER_DIGITS])), asks);
        assert_eq!(read(&format!("{}|0|7|5000", u64::MAX)), asks);
        // An earlier version of the scripts.
        assert_eq!(read(&format!("{id}|0|7|0")), asks);
        for odd in ["", "|", "1|0|7", "-1|0|7|0", &format!("{id}x|0|7|5000")] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }
}
