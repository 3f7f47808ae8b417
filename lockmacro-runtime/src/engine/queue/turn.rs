//! The length of a turn: the time for which one process passes a lock on inside itself, by one
//! grant of the store.

use std::time::Duration;

/// Round trips in a turn.
const ROUND_TRIPS: u32 = 10;
const TURN_MIN: Duration = Duration::from_millis(20);
const TURN_MAX: Duration = Duration::from_millis(100);

/// The length of a turn: the value that was set, or else ten round trips as last measured.
pub(crate) fn turn(set: Option<Duration>, round_trip: Duration) -> Duration {
    set.unwrap_or_else(|| (round_trip * ROUND_TRIPS).clamp(TURN_MIN, TURN_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_turn_is_ten_round_trips_within_its_bounds() {
        assert_eq!(turn(None, Duration::ZERO), ms(20));
        assert_eq!(turn(None, ms(5)), ms(50));
        assert_eq!(turn(None, ms(50)), ms(100));
        assert_eq!(turn(Some(Duration::ZERO), ms(50)), Duration::ZERO);
        assert_eq!(turn(Some(ms(900)), ms(1)), ms(900));
    }
}
