//! Subscriptions that fail or end soon, as where a proxy closes each of them again. After many of
//! them polling serves the waiters better.

use std::time::Duration;

use crate::value::sync::Mutex;
use crate::value::time::Instant;

/// Delay before a subscription is tried again.
pub(crate) const SUBSCRIBE_RETRY: Duration = Duration::from_secs(30);
/// A subscription that ends earlier has cost more requests than polling would have.
const WORTHWHILE: Duration = Duration::from_millis(500);
/// Most brief subscriptions in a row, before the waiters poll for `SUBSCRIBE_RETRY`.
const BRIEF_MAX: u32 = 32;

/// The last subscriptions on the connections of one connector.
///
/// One that was worthwhile ends the row. So an outage, or a connection that is cut from time to
/// time, is no reason to poll.
#[derive(Default)]
pub(crate) struct BriefSubscriptions(Mutex<Last>);

#[derive(Default)]
struct Last {
    tried: Option<Instant>,
    /// When the last one was confirmed, while it is not known to be brief.
    confirmed: Option<Instant>,
    /// How many were tried since one was worthwhile.
    in_a_row: u32,
}

impl BriefSubscriptions {
    /// Whether another subscription may be tried, as the last one has ended.
    pub(crate) fn may_try(&self) -> bool {
        let mut last = self.0.lock();
        let confirmed = last.confirmed.take();
        if confirmed.is_some_and(|confirmed| confirmed.elapsed() >= WORTHWHILE) {
            last.in_a_row = 0;
        }
        let waits = last.tried.is_some_and(|tried| tried.elapsed() <= SUBSCRIBE_RETRY);
        last.in_a_row < BRIEF_MAX || !waits
    }

    /// A subscription is tried on a connection that is open.
    pub(crate) fn tries(&self) {
        let mut last = self.0.lock();
        last.tried = Some(Instant::now());
        last.in_a_row = last.in_a_row.saturating_add(1);
    }

    /// The subscription is confirmed.
    pub(crate) fn confirmed(&self) {
        self.0.lock().confirmed = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use tokio::time::advance;

    use super::*;

    /// Subscribes for as long as that may be tried, for each of these times. Returns how often.
    async fn subscribe(
        brief: &BriefSubscriptions,
        lasting: impl Iterator<Item = Duration>,
    ) -> usize {
        let mut count = 0;
        for lasts in lasting {
            if !brief.may_try() {
                break;
            }
            count += 1;
            brief.tries();
            brief.confirmed();
            advance(lasts).await;
        }
        count
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_soon_ends_each_subscription_is_polled_for_a_while() {
        let brief = BriefSubscriptions::default();
        let soon = || iter::repeat_n(WORTHWHILE / 2, 1_000);
        assert_eq!(subscribe(&brief, soon()).await, BRIEF_MAX as usize);
        advance(WORTHWHILE * 4).await;
        assert!(!brief.may_try());
        advance(SUBSCRIBE_RETRY).await;
        assert_eq!(subscribe(&brief, soon()).await, 1, "it is still the same");
        advance(SUBSCRIBE_RETRY).await;
        assert_eq!(subscribe(&brief, iter::once(WORTHWHILE)).await, 1);
        assert_eq!(subscribe(&brief, soon()).await, BRIEF_MAX as usize, "it was well meanwhile");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_confirms_no_subscription_is_polled_for_a_while() {
        let brief = BriefSubscriptions::default();
        for _ in 0..BRIEF_MAX {
            assert!(brief.may_try());
            brief.tries();
            // An answer is waited for.
            advance(WORTHWHILE * 4).await;
        }
        assert!(!brief.may_try());
    }

    #[tokio::test(start_paused = true)]
    async fn subscriptions_that_last_for_a_while_are_replaced_however_many_they_are() {
        let brief = BriefSubscriptions::default();
        assert_eq!(subscribe(&brief, iter::repeat_n(WORTHWHILE, 1_000)).await, 1_000);
        let some_are_brief = iter::repeat_n([WORTHWHILE, ms(9), ms(90)], 300).flatten();
        assert_eq!(subscribe(&brief, some_are_brief).await, 900);
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }
}
