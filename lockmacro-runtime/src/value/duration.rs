//! Durations in URLs, in the grammar of the attribute.

use std::time::Duration;

/// Parses a duration such as `100ms`, `2s`, `1m30s` or `7d`: numbers with units, in whole
/// milliseconds. `None` for anything else, also for fractions, and for months and years, which have
/// no fixed length.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let mut units = text.split(|c: char| !c.is_alphabetic());
    if units.any(|unit| matches!(unit, "M" | "month" | "months" | "y" | "yr" | "year" | "years"))
        || text.contains('.')
    {
        return None;
    }
    let time = humantime::parse_duration(text).ok()?;
    time.subsec_nanos().is_multiple_of(1_000_000).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_in_the_attribute() {
        let seconds = Duration::from_secs;
        for (text, time) in [
            ("100ms", Duration::from_millis(100)),
            ("2s", seconds(2)),
            ("1m30s", seconds(90)),
            ("1h 5min", seconds(65 * 60)),
            ("30d", seconds(30 * 24 * 60 * 60)),
            ("0s", Duration::ZERO),
        ] {
            assert_eq!(duration(text), Some(time), "{text}");
        }
    }

    #[test]
    fn what_has_no_unit_or_no_fixed_length_is_no_time() {
        for text in
            ["", "30", "s", "-1s", "1.5s", "1M", "2months", "1y", "5us", "99999999999999999999h"]
        {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
