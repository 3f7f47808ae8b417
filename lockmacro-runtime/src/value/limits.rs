//! Times and numbers that all parts of the engine share.

use std::time::Duration;

/// Shortest ttl. A shorter lease could be over before a busy machine has started the body.
pub(crate) const TTL_MIN: Duration = Duration::from_millis(50);
/// Longest ttl.
pub(crate) const TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Default ttl.
pub(crate) const TTL_DEFAULT: Duration = Duration::from_secs(30);
/// How long a waiter stays in the queue without asking again.
pub(crate) const WAITER_TTL: Duration = Duration::from_secs(10);
/// How long a lock is handed off until its new holder confirms it.
pub(crate) const CONFIRM_WINDOW: Duration = Duration::from_secs(5);
/// The wait that stands for a wait without an end.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// Most waiters for one key.
pub(crate) const QUEUE_MAX: usize = 10_000;

/// The error of a ttl that is shorter than [`TTL_MIN`], or longer than allowed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidTtl {
    pub(crate) ttl: Duration,
    pub(crate) longest: Duration,
}

/// Rounds a ttl down to whole milliseconds, which the server counts; an error if it is out of
/// bounds.
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
