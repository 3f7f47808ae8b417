//! How a busy process lets others have a key, in a store without a queue.
//!
//! A process whose turn ends releases the key and asks for it again at once, for its further
//! waiters. Another process asks every 25 to 100 ms, so it would find the key free by chance only.
//! So the first process rests before it asks: after each turn while others are there, and once in a
//! while to find out. A rest in which nobody has taken the key ends that.

use std::time::Duration;

use crate::sys::random::HashMap;
use crate::sys::sync::Mutex;
use crate::sys::time::Instant;

/// A rest while others are there. They ask again soon, as they have had the key a moment ago.
const AMONG_OTHERS: Duration = Duration::from_millis(50);
/// A rest to find out: longer than the usual longest pause of a waiter.
const TO_FIND_OUT: Duration = Duration::from_millis(110);
/// How often a process that has had the key to itself finds out.
const EVERY: Duration = Duration::from_secs(2);
/// Longest time from the end of a turn to the request for the next one.
const AT_ONCE: Duration = Duration::from_millis(20);
/// Number of keys from which on those are forgotten that have had no turn for a while.
const SWEEP_FROM: usize = 64;

/// The keys of which a turn has ended, with waiters of this process left.
#[derive(Debug, Default)]
pub(super) struct Rests(Mutex<Keys>);

#[derive(Debug, Default)]
struct Keys {
    turns: HashMap<Box<str>, Turns>,
    /// The number of keys at which some are forgotten next.
    sweep_at: usize,
}

#[derive(Debug, Clone, Copy)]
struct Turns {
    /// When the last turn ended.
    ended: Instant,
    /// Since when no other process had a chance.
    alone_since: Instant,
    has_others: bool,
}

impl Rests {
    /// Records that a turn has ended, and that others of this process wait.
    pub(super) fn turn_ended(&self, key: &str, now: Instant) {
        let mut keys = self.0.lock();
        if let Some(turns) = keys.turns.get_mut(key) {
            turns.ended = now;
            return;
        }
        if keys.turns.len() >= keys.sweep_at.max(SWEEP_FROM) {
            keys.turns.retain(|_, turns| now.duration_since(turns.ended) < EVERY);
            keys.sweep_at = keys.turns.len() * 2;
        }
        let turns = Turns { ended: now, alone_since: now, has_others: false };
        keys.turns.insert(key.into(), turns);
    }

    /// How long to rest before the key is asked for.
    pub(super) fn rest(&self, key: &str, now: Instant) -> Option<Duration> {
        let mut keys = self.0.lock();
        let turns = keys.turns.get_mut(key)?;
        if now.duration_since(turns.ended) > AT_ONCE {
            return None;
        }
        let is_due = now.duration_since(turns.alone_since) >= EVERY;
        let rest = if turns.has_others { AMONG_OTHERS } else { TO_FIND_OUT };
        (turns.has_others || is_due).then_some(rest)
    }

    /// Records what the request after a rest has found.
    pub(super) fn found(&self, key: &str, has_others: bool, now: Instant) {
        if let Some(turns) = self.0.lock().turns.get_mut(key) {
            turns.has_others = has_others;
            turns.alone_since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_rests_while_others_are_there_and_finds_out_now_and_then() {
        let rests = Rests::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(rests.rest("k", at(0)), None, "no turn has ended");
        rests.turn_ended("k", at(0));
        assert_eq!(rests.rest("k", at(1)), None, "it is alone");
        rests.turn_ended("k", at(2_000));
        assert_eq!(rests.rest("k", at(2_001)), Some(TO_FIND_OUT));
        rests.found("k", true, at(2_111));
        rests.turn_ended("k", at(2_200));
        assert_eq!(rests.rest("k", at(2_201)), Some(AMONG_OTHERS));
        assert_eq!(rests.rest("k", at(2_301)), None, "it does not ask after a turn");
        rests.turn_ended("k", at(2_400));
        assert_eq!(rests.rest("k", at(2_401)), Some(AMONG_OTHERS));
        rests.found("k", false, at(2_451));
        rests.turn_ended("k", at(2_500));
        assert_eq!(rests.rest("k", at(2_501)), None, "the others are gone");
    }

    #[test]
    fn keys_without_turns_are_forgotten() {
        let rests = Rests::default();
        let start = Instant::now();
        for nth in 0..1_000_u32 {
            rests.turn_ended(&nth.to_string(), start + nth * EVERY / 32);
        }
        let kept = rests.0.lock().turns.len();
        assert!(kept <= SWEEP_FROM, "{kept}");
    }
}
