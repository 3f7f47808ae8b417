//! How long this process has seen locks held, template by template: what a refused caller is told
//! to wait before it asks again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::value::key::LockKey;

/// So many templates are remembered, and so many keys that have none.
const SLOTS: usize = 256;
/// In so many slots one of them may be.
const WAYS: usize = 4;
/// What is supposed of a lock that was never seen to end.
const UNSEEN: Duration = Duration::from_secs(5);
/// A time is kept to a part of an octave, as it fits into a byte.
const PARTS: f64 = 8.0;

/// The latest eight holds of each template. Its memory is fixed, and nobody waits for it: threads
/// that meet may lose a hold, which is a suggestion less.
#[derive(Debug)]
pub(crate) struct HoldTimes {
    templates: Box<[Slot; SLOTS]>,
    /// Apart, so that many keys do not crowd out the templates.
    keys: Box<[Slot; SLOTS]>,
}

#[derive(Debug, Default)]
struct Slot {
    /// A hash; 0 where nothing is yet.
    of: AtomicU64,
    /// A byte for each hold, the latest one in the lowest; 0 where there was none.
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
    /// Takes note of how long a key was held.
    pub(crate) fn note(&self, key: &LockKey, held: Duration) {
        let (slots, of) = self.place(key);
        let mine = slots.iter().find(|slot| slot.of.load(Ordering::Relaxed) == of);
        let slot = mine.unwrap_or_else(|| {
            let free = slots.iter().find(|slot| slot.of.load(Ordering::Relaxed) == 0);
            let [first, ..] = slots;
            let slot = free.or_else(|| slots.get(fastrand::usize(..WAYS))).unwrap_or(first);
            slot.latest.store(0, Ordering::Relaxed);
            slot.of.store(of, Ordering::Relaxed);
            slot
        });
        let latest = slot.latest.load(Ordering::Relaxed);
        slot.latest.store(latest << 8 | u64::from(to_byte(held)), Ordering::Relaxed);
    }

    /// When a caller may ask again that was refused `key`: after what is usual for the holder and
    /// those before the caller in line, and not after the holder's lease, of which `left` is left.
    pub(crate) fn retry_after(
        &self,
        key: &LockKey,
        before: u32,
        left: Option<Duration>,
    ) -> Duration {
        let one = self.usual(key).unwrap_or(UNSEEN);
        let turn = one.saturating_mul(before.saturating_add(1));
        left.filter(|_| before == 0).map_or(turn, |left| left.min(turn))
    }

    /// Three of four holds were no longer; `None` when none was seen.
    fn usual(&self, key: &LockKey) -> Option<Duration> {
        let (slots, of) = self.place(key);
        let slot = slots.iter().find(|slot| slot.of.load(Ordering::Relaxed) == of)?;
        let mut seen = slot.latest.load(Ordering::Relaxed).to_le_bytes();
        seen.sort_unstable();
        let seen = &seen[seen.iter().take_while(|byte| **byte == 0).count()..];
        seen.get((seen.len() * 3).div_ceil(4).checked_sub(1)?).map(|byte| from_byte(*byte))
    }

    /// Where it is remembered, and by which number.
    fn place(&self, key: &LockKey) -> (&[Slot; WAYS], u64) {
        let (slots, of) = match key.made_of() {
            "" => (&self.keys, hash_of(key.as_str().bytes())),
            template => (&self.templates, hash_of(shape(template))),
        };
        let (sets, _) = slots.as_chunks::<WAYS>();
        let nth = usize::try_from(of % (SLOTS / WAYS) as u64).unwrap_or(0);
        (&sets[nth], of | 1 << 63)
    }
}

/// A template without the names of its values: `order:<id>` and `order:<order.id>` make the same
/// keys.
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

/// From 1 for a millisecond and less, in steps of 9 %.
fn to_byte(held: Duration) -> u8 {
    let part = ((held.as_secs_f64() * 1_000.0).max(1.0).log2() * PARTS).ceil();
    // A float is cut at the ends of what it is made into.
    (part as u8).saturating_add(1)
}

fn from_byte(byte: u8) -> Duration {
    Duration::from_secs_f64((f64::from(byte.saturating_sub(1)) / PARTS).exp2() / 1_000.0)
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

    /// As long, but for the steps.
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
    fn what_is_usual_of_a_template_is_told_of_each_of_its_keys() {
        let hold_times = HoldTimes::default();
        let lease = Some(ms(299_000));
        assert_eq!(hold_times.retry_after(&order(1), 0, lease), UNSEEN);
        // One of four is an outlier.
        for held in [300, 300, 60_000, 300, 300, 300, 60_000, 300] {
            hold_times.note(&order(1), ms(held));
        }
        assert!(is_about(hold_times.retry_after(&order(2), 0, lease), ms(300)));
        // Another argument's name makes the same keys.
        let other = LockKey::template("order:<order.id>").literal("order:").value(&2).into();
        assert!(is_about(hold_times.retry_after(&other, 0, None), ms(300)));
        assert_eq!(hold_times.retry_after(&"order:2".into(), 0, None), UNSEEN);
    }

    #[test]
    fn it_follows_what_was_seen_last() {
        let hold_times = HoldTimes::default();
        (0..8).for_each(|_| hold_times.note(&order(1), ms(10_000)));
        (0..8).for_each(|_| hold_times.note(&order(1), ms(20)));
        assert!(is_about(hold_times.retry_after(&order(1), 0, None), ms(20)));
    }

    #[test]
    fn the_lease_ends_the_holders_time_and_not_that_of_others_in_line() {
        let hold_times = HoldTimes::default();
        hold_times.note(&order(1), ms(1_000));
        assert_eq!(hold_times.retry_after(&order(1), 0, Some(ms(70))), ms(70));
        assert!(is_about(hold_times.retry_after(&order(1), 3, Some(ms(70))), ms(4_000)));
        assert!(hold_times.retry_after(&order(1), u32::MAX, None) > ms(4_000));
    }

    #[test]
    fn many_keys_do_not_crowd_out_a_template() {
        let hold_times = HoldTimes::default();
        hold_times.note(&order(1), ms(20));
        (0..10_000).for_each(|nth: u32| hold_times.note(&nth.to_string().into(), ms(9_000)));
        assert!(is_about(hold_times.retry_after(&order(1), 0, None), ms(20)));
    }
}
