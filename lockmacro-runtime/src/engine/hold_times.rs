//! Recent hold times of this process, by template of the key. The `retry_after` of a refused caller
//! is estimated from them.

use std::collections::VecDeque;
use std::time::Duration;

use crate::sys::random::HashMap;
use crate::sys::sync::Mutex;
use crate::value::key::LockKey;

/// Most templates that are remembered, and most keys without a template.
const MOST: usize = 256;
/// Number of hold times that are remembered of each.
const LATEST: usize = 8;
/// Assumed hold time of a lock that was never seen to end.
const UNSEEN: Duration = Duration::from_secs(5);

/// Hold times by template or key, the latest one first.
type HoldTable = Mutex<HashMap<String, VecDeque<Duration>>>;

/// The latest hold times of each template.
#[derive(Debug, Default)]
pub(crate) struct HoldTimes {
    templates: HoldTable,
    /// A table of its own, so that many keys do not evict the templates.
    keys: HoldTable,
}

impl HoldTimes {
    /// Records how long a key was held.
    pub(crate) fn note(&self, key: &LockKey, held: Duration) {
        let (table, of) = self.table(key);
        let mut table = table.lock();
        if let Some(latest) = table.get_mut(of) {
            latest.truncate(LATEST - 1);
            latest.push_front(held);
            return;
        }
        if table.len() >= MOST
            && let Some(any) = table.keys().next().cloned()
        {
            table.remove(&any);
        }
        table.insert(of.to_owned(), VecDeque::from([held]));
    }

    /// When a caller that found `key` busy may ask again: after the usual hold times of the holder
    /// and of the `before` waiters ahead of the caller. The holder itself has no more than `left`,
    /// the rest of its lease.
    pub(crate) fn retry_after(
        &self,
        key: &LockKey,
        before: u32,
        left: Option<Duration>,
    ) -> Duration {
        let one = self.usual(key).unwrap_or(UNSEEN);
        let all = one.saturating_mul(before.saturating_add(1));
        left.filter(|_| before == 0).map_or(all, |left| left.min(all))
    }

    /// The third quartile of the hold times; `None` when none was seen.
    pub(crate) fn usual(&self, key: &LockKey) -> Option<Duration> {
        let (table, of) = self.table(key);
        let mut seen: Vec<_> = table.lock().get(of)?.iter().copied().collect();
        seen.sort_unstable();
        seen.get((seen.len() * 3).div_ceil(4).checked_sub(1)?).copied()
    }

    /// The table in which a key's hold times are, and under which text.
    fn table<'a>(&'a self, key: &'a LockKey) -> (&'a HoldTable, &'a str) {
        match key.made_of() {
            "" => (&self.keys, key.as_str()),
            template => (&self.templates, template),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(id: u64) -> LockKey {
        LockKey::template("order:<id>").literal("order:").value(&id).into()
    }

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn keys_of_one_template_share_its_hold_times() {
        let hold_times = HoldTimes::default();
        let lease = Some(ms(299_000));
        assert_eq!(hold_times.retry_after(&order(1), 0, lease), UNSEEN);
        // One time of four is an outlier.
        for held in [300, 300, 60_000, 300, 300, 300, 60_000, 300] {
            hold_times.note(&order(1), ms(held));
        }
        assert_eq!(hold_times.retry_after(&order(2), 0, lease), ms(300));
        assert_eq!(hold_times.retry_after(&"order:2".into(), 0, None), UNSEEN);
    }

    #[test]
    fn the_estimate_follows_the_latest_hold_times() {
        let hold_times = HoldTimes::default();
        (0..8).for_each(|_| hold_times.note(&order(1), ms(10_000)));
        (0..8).for_each(|_| hold_times.note(&order(1), ms(20)));
        assert_eq!(hold_times.retry_after(&order(1), 0, None), ms(20));
    }

    #[test]
    fn the_lease_bounds_the_holders_time_and_not_that_of_waiters() {
        let hold_times = HoldTimes::default();
        hold_times.note(&order(1), ms(1_000));
        assert_eq!(hold_times.retry_after(&order(1), 0, Some(ms(70))), ms(70));
        assert_eq!(hold_times.retry_after(&order(1), 3, Some(ms(70))), ms(4_000));
        assert!(hold_times.retry_after(&order(1), u32::MAX, None) > ms(4_000));
    }

    #[test]
    fn many_keys_take_bounded_memory_and_evict_no_template() {
        let hold_times = HoldTimes::default();
        hold_times.note(&order(1), ms(20));
        (0..10_000).for_each(|nth: u32| hold_times.note(&nth.to_string().into(), ms(9_000)));
        assert_eq!(hold_times.keys.lock().len(), MOST);
        assert_eq!(hold_times.retry_after(&order(1), 0, None), ms(20));
    }
}
