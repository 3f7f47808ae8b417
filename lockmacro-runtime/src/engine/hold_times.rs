//! Recent hold times of this process, by template of the key. The `retry_after` of a refused caller
//! is estimated from them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::value::key::LockKey;
use crate::value::random;

/// Number of templates that are remembered, and of keys without a template.
const SLOTS: usize = 256;
/// Number of slots in which the same template may be (the associativity of the table).
const WAYS: usize = 4;
/// Assumed hold time of a lock that was never seen to end.
const UNSEEN: Duration = Duration::from_secs(5);
/// Steps in an octave, so that a time fits into a byte.
const STEPS: f64 = 8.0;

/// The latest eight hold times of each template. Its memory is fixed. It has no mutex. Two threads
/// at the same slot may lose a time, which only makes the estimate worse.
#[derive(Debug)]
pub(crate) struct HoldTimes {
    templates: Box<[Slot; SLOTS]>,
    /// A table of its own, so that many keys do not evict the templates.
    keys: Box<[Slot; SLOTS]>,
}

#[derive(Debug, Default)]
struct Slot {
    /// Hash of the template or key; 0 in an empty slot.
    of: AtomicU64,
    /// A byte for each hold time, the latest one in the lowest; 0 where there was none.
    latest: AtomicU64,
}

impl Default for HoldTimes {
    fn default() -> Self {
        let slots = || {
            Box::new([const { Slot { of: AtomicU64::new(0), latest: AtomicU64::new(0) } }; SLOTS])
        };
        Self { templates: slots(), keys: slots() }
    }
}

impl HoldTimes {
    /// Records how long a key was held.
    pub(crate) fn note(&self, key: &LockKey, held: Duration) {
        let (slots, of) = self.slots(key);
        let mine = slots.iter().find(|slot| slot.of.load(Ordering::Relaxed) == of);
        let slot = mine.unwrap_or_else(|| {
            let free = slots.iter().find(|slot| slot.of.load(Ordering::Relaxed) == 0);
            let [first, ..] = slots;
            let slot = free.or_else(|| slots.get(random::within(0..WAYS))).unwrap_or(first);
            slot.latest.store(0, Ordering::Relaxed);
            slot.of.store(of, Ordering::Relaxed);
            slot
        });
        let latest = slot.latest.load(Ordering::Relaxed);
        slot.latest.store(latest << 8 | u64::from(to_byte(held)), Ordering::Relaxed);
    }

    /// Forgets all hold times.
    #[cfg(feature = "test-util")]
    pub(crate) fn reset(&self) {
        for slot in self.templates.iter().chain(&*self.keys) {
            slot.latest.store(0, Ordering::Relaxed);
            slot.of.store(0, Ordering::Relaxed);
        }
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
    fn usual(&self, key: &LockKey) -> Option<Duration> {
        let (slots, of) = self.slots(key);
        let slot = slots.iter().find(|slot| slot.of.load(Ordering::Relaxed) == of)?;
        let mut seen = slot.latest.load(Ordering::Relaxed).to_le_bytes();
        seen.sort_unstable();
        let seen = &seen[seen.iter().take_while(|byte| **byte == 0).count()..];
        seen.get((seen.len() * 3).div_ceil(4).checked_sub(1)?).map(|byte| from_byte(*byte))
    }

    /// The slots in which a key may be, and its hash.
    fn slots(&self, key: &LockKey) -> (&[Slot; WAYS], u64) {
        let (slots, of) = match key.made_of() {
            "" => (&self.keys, hash_of(key.as_str().bytes())),
            template => (&self.templates, hash_of(shape(template))),
        };
        let (sets, _) = slots.as_chunks::<WAYS>();
        let nth = usize::try_from(of % (SLOTS / WAYS) as u64).unwrap_or(0);
        (&sets[nth], of | 1 << 63)
    }
}

/// The template without the names in its placeholders: `order:<id>` and `order:<order.id>` make the
/// same keys.
fn shape(template: &str) -> impl Iterator<Item = u8> {
    let mut inside = false;
    template.bytes().filter(move |byte| match byte {
        b'<' => !std::mem::replace(&mut inside, true),
        b'>' => std::mem::take(&mut inside),
        _ => !inside,
    })
}

/// FNV-1a, which needs no buffer.
fn hash_of(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A hold time as a byte: 1 for a millisecond or less, then in steps of 9 %.
fn to_byte(held: Duration) -> u8 {
    let part = ((held.as_secs_f64() * 1_000.0).max(1.0).log2() * STEPS).ceil();
    // The cast saturates.
    (part as u8).saturating_add(1)
}

fn from_byte(byte: u8) -> Duration {
    Duration::from_secs_f64((f64::from(byte.saturating_sub(1)) / STEPS).exp2() / 1_000.0)
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

    /// Whether both times are the same within a step.
    fn is_about(time: Duration, expected: Duration) -> bool {
        expected <= time && time < expected.mul_f64(1.1)
    }

    #[test]
    fn times_are_kept_within_a_tenth_and_never_shortened() {
        for held in [1, 2, 17, 300, 5_000, 86_400_000] {
            let kept = from_byte(to_byte(ms(held)));
            assert!(is_about(kept + Duration::from_nanos(10), ms(held)), "{held}: {kept:?}");
        }
        assert_eq!(to_byte(Duration::ZERO), 1);
        assert_eq!(to_byte(Duration::MAX), u8::MAX);
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
        assert!(is_about(hold_times.retry_after(&order(2), 0, lease), ms(300)));
        // The name of an argument does not matter.
        let other = LockKey::template("order:<order.id>").literal("order:").value(&2).into();
        assert!(is_about(hold_times.retry_after(&other, 0, None), ms(300)));
        assert_eq!(hold_times.retry_after(&"order:2".into(), 0, None), UNSEEN);
    }

    #[test]
    fn the_estimate_follows_the_latest_hold_times() {
        let hold_times = HoldTimes::default();
        (0..8).for_each(|_| hold_times.note(&order(1), ms(10_000)));
        (0..8).for_each(|_| hold_times.note(&order(1), ms(20)));
        assert!(is_about(hold_times.retry_after(&order(1), 0, None), ms(20)));
    }

    #[test]
    fn the_lease_bounds_the_holders_time_and_not_that_of_waiters() {
        let hold_times = HoldTimes::default();
        hold_times.note(&order(1), ms(1_000));
        assert_eq!(hold_times.retry_after(&order(1), 0, Some(ms(70))), ms(70));
        assert!(is_about(hold_times.retry_after(&order(1), 3, Some(ms(70))), ms(4_000)));
        assert!(hold_times.retry_after(&order(1), u32::MAX, None) > ms(4_000));
    }

    #[test]
    fn many_keys_do_not_evict_a_template() {
        let hold_times = HoldTimes::default();
        hold_times.note(&order(1), ms(20));
        (0..10_000).for_each(|nth: u32| hold_times.note(&nth.to_string().into(), ms(9_000)));
        assert!(is_about(hold_times.retry_after(&order(1), 0, None), ms(20)));
    }
}
