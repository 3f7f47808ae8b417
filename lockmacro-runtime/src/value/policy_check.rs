//! The checks of a policy while a function is compiled: those that the attribute makes of its own
//! arguments. A panic here is an error of the compiler.

use std::time::Duration;

use crate::value::defaults::WAIT_MAX;
use crate::value::limits::{TTL_DEFAULT, TTL_MAX, TTL_MIN};
use crate::value::mode::{Mode, PERMITS_MAX};
use crate::value::policy::LockPolicy;

/// Returns `policy`, and refuses one whose settings are wrong or contradict each other or the
/// attribute's other `arguments`, which win.
///
/// A time that is known only when the function is called is `Duration::MAX` among the `arguments`.
/// `on_busy` is the attribute's word.
#[track_caller]
pub const fn checked(policy: LockPolicy, arguments: LockPolicy, on_busy: &str) -> LockPolicy {
    if let Some(fault) = fault(policy, arguments, on_busy) {
        panic!("{}", fault);
    }
    policy
}

const fn fault(policy: LockPolicy, arguments: LockPolicy, on_busy: &str) -> Option<&'static str> {
    let ttl = or(arguments.ttl, policy.ttl);
    let is_renewed = arguments.renews || policy.renews || ttl.is_none();
    let lease = match ttl {
        Some(ttl) => ttl,
        None => TTL_DEFAULT,
    };
    let max_hold = or(arguments.max_hold, policy.max_hold);
    let fault = if let Some(ttl) = policy.ttl
        && (is_less(ttl, TTL_MIN) || is_less(TTL_MAX, ttl))
    {
        "a `ttl` is between 50 ms and 24 h: correct that of the policy"
    } else if let Some(wait) = policy.wait
        && is_less(WAIT_MAX, wait)
        && is_less(wait, Duration::MAX)
    {
        "a `wait` is at most 24 h: correct that of the policy, or call `wait_forever()` there"
    } else if let (Some(Duration::MAX), None) = (policy.wait, arguments.wait)
        && !matches!(on_busy.as_bytes(), b"error")
    {
        "`on_busy` is for when the wait is over, and that of the policy never is: write how long \
         to wait here, as in `wait = \"5s\"`, or remove `on_busy`"
    } else if let Some(Mode::Permits(permits)) = policy.mode
        && (permits == 0 || permits > PERMITS_MAX)
    {
        "`permits` is 1 to 10,000: correct that of the policy"
    } else if max_hold.is_some() && !is_renewed {
        "`max_hold` is the end of renewal, and a lock with `ttl` is not renewed: add `renew` here \
         or in the policy, or remove `max_hold`"
    } else if let Some(max_hold) = max_hold
        && is_less(max_hold, lease)
        && is_less(lease, Duration::MAX)
    {
        "`max_hold` is the end of renewal, so it is at least the `ttl`, which is 30 s where none \
         is given: raise `max_hold` or lower `ttl`, here or in the policy"
    } else if let Some(min_hold) = or(arguments.min_hold, policy.min_hold)
        && is_less(lease, min_hold)
        && is_less(min_hold, Duration::MAX)
    {
        "`min_hold` is at most the `ttl`, which is 30 s where none is given: lower `min_hold` or \
         raise `ttl`, here or in the policy"
    } else {
        return None;
    };
    Some(fault)
}

const fn or(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    if one.is_some() { one } else { other }
}

const fn is_less(one: Duration, other: Duration) -> bool {
    one.as_nanos() < other.as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: LockPolicy = LockPolicy::new();

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn refuses(policy: LockPolicy, arguments: LockPolicy, on_busy: &str) -> Option<&'static str> {
        fault(policy, arguments, on_busy).and_then(|fault| fault.split('`').nth(1))
    }

    #[test]
    fn each_value_has_bounds() {
        for (policy, about) in [
            (NONE, None),
            (NONE.ttl(TTL_MIN), None),
            (NONE.ttl(TTL_MAX), None),
            (NONE.ttl(Duration::ZERO), Some("ttl")),
            (NONE.ttl(TTL_MIN - Duration::from_nanos(1)), Some("ttl")),
            (NONE.ttl(TTL_MAX + Duration::from_nanos(1)), Some("ttl")),
            (NONE.wait(Duration::ZERO), None),
            (NONE.wait(WAIT_MAX), None),
            (NONE.wait(WAIT_MAX + Duration::from_nanos(1)), Some("wait")),
            (NONE.wait_forever(), None),
            (NONE.shared(), None),
            (NONE.permits(1), None),
            (NONE.permits(PERMITS_MAX), None),
            (NONE.permits(0), Some("permits")),
            (NONE.permits(PERMITS_MAX + 1), Some("permits")),
        ] {
            assert_eq!(refuses(policy, NONE, "error"), about, "{policy:?}");
        }
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        for (policy, arguments, about) in [
            (NONE.renew(), NONE, None),
            (NONE.renew(), NONE.ttl(secs(5)), None),
            (NONE.max_hold(secs(30)), NONE, None),
            (NONE.max_hold(secs(29)), NONE, Some("max_hold")),
            (NONE.max_hold(secs(29)), NONE.ttl(secs(10)).renew(), None),
            (NONE.max_hold(secs(60)), NONE.ttl(secs(10)), Some("max_hold")),
            (NONE.ttl(secs(10)), NONE.max_hold(secs(60)), Some("max_hold")),
            (NONE.ttl(secs(10)).renew(), NONE.max_hold(secs(60)), None),
            (NONE.ttl(secs(10)).renew(), NONE.max_hold(secs(9)), Some("max_hold")),
            (NONE.min_hold(secs(31)), NONE, Some("min_hold")),
            (NONE.min_hold(secs(31)), NONE.ttl(secs(31)), None),
            (NONE.ttl(secs(10)).min_hold(secs(10)), NONE, None),
            (NONE.ttl(secs(10)).min_hold(secs(10)), NONE.ttl(secs(9)), Some("min_hold")),
            (NONE.ttl(secs(10)).min_hold(secs(10)), NONE.min_hold(secs(11)), Some("min_hold")),
        ] {
            let found = refuses(policy, arguments, "error");
            assert_eq!(found, about, "{policy:?} beside {arguments:?}");
        }
    }

    #[test]
    fn a_time_that_is_not_known_yet_contradicts_nothing() {
        let later = Duration::MAX;
        for (policy, arguments) in [
            (NONE.min_hold(secs(60)), NONE.ttl(later)),
            (NONE.ttl(secs(10)), NONE.min_hold(later)),
            (NONE.ttl(secs(10)).renew(), NONE.max_hold(later)),
            (NONE.max_hold(secs(1)).renew(), NONE.ttl(later)),
        ] {
            assert_eq!(refuses(policy, arguments, "error"), None, "{policy:?}, {arguments:?}");
        }
        // It is not renewed, however long it is.
        assert!(refuses(NONE.max_hold(secs(1)), NONE.ttl(later), "error").is_some());
    }

    #[test]
    fn what_happens_after_the_wait_needs_an_end_of_it() {
        let forever = NONE.wait_forever();
        assert_eq!(refuses(forever, NONE, "error"), None);
        for on_busy in ["skip", "fallback", "defer"] {
            assert_eq!(refuses(forever, NONE, on_busy), Some("on_busy"));
            assert_eq!(refuses(forever, NONE.wait(secs(5)), on_busy), None);
        }
    }
}
