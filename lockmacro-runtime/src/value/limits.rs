//! The times and numbers that all parts of the engine keep to.

use std::time::Duration;

/// Shortest ttl: below it a lease is over before a busy machine has begun the body.
pub(crate) const TTL_MIN: Duration = Duration::from_millis(50);
/// Longest ttl.
pub(crate) const TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The ttl of a lock that was given none.
pub(crate) const TTL_DEFAULT: Duration = Duration::from_secs(30);
/// How long a place in line is kept without a word from its waiter.
pub(crate) const WAITER_TTL: Duration = Duration::from_secs(10);
/// For how long a lock is handed over until its new holder has confirmed it.
pub(crate) const CONFIRM_WINDOW: Duration = Duration::from_secs(5);
/// Waiting that long stands for waiting without an end.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// How many may wait for one key.
pub(crate) const QUEUE_MAX: usize = 10_000;

/// A ttl that is no lease: shorter than [`TTL_MIN`], or longer than the longest one allowed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidTtl {
    pub(crate) ttl: Duration,
    pub(crate) longest: Duration,
}

/// A ttl the server can count (whole milliseconds), or the error that says why not.
pub(crate) fn check_ttl(ttl: Duration) -> Result<Duration, InvalidTtl> {
    if (TTL_MIN..=TTL_MAX).contains(&ttl) {
        Ok(ttl - Duration::from_nanos(u64::from(ttl.subsec_nanos() % 1_000_000)))
    } else {
        Err(InvalidTtl { ttl, longest: TTL_MAX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_whole_milliseconds_within_its_bounds() {
        assert_eq!(check_ttl(Duration::from_micros(50_999)), Ok(TTL_MIN));
        assert_eq!(check_ttl(TTL_MAX), Ok(TTL_MAX));
        let over = TTL_MAX + Duration::from_nanos(1);
        for ttl in [Duration::ZERO, Duration::from_micros(49_999), over] {
            assert_eq!(check_ttl(ttl), Err(InvalidTtl { ttl, longest: TTL_MAX }));
        }
    }
}
