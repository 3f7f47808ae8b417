//! Settings of many locks in one constant, and their checks while a function is compiled: those
//! that the attribute makes of its own arguments.

use std::time::Duration;

use crate::value::defaults::{WAIT_MAX, WAIT_MIN};
use crate::value::limits::{TTL_DEFAULT, TTL_MAX, TTL_MIN};
use crate::value::loss::OnLost;
use crate::value::mode::{Mode, PERMITS_MAX};

/// Settings that many locks share, as a constant: the defaults of a team in one place.
///
/// The functions have the names of those of [`Lock`](crate::Lock), and the same values. Functions
/// name the policy in the attribute, `policy = ORDERS`, where an argument beside it wins. Code
/// without the attribute calls [`Lock::policy`](crate::Lock::policy).
///
/// The attribute checks the policy together with its own arguments when the function is compiled: a
/// `ttl` out of bounds or a `min_hold` above the `ttl` does not compile. By hand a wrong value
/// fails where the same setting of a `Lock` does, such as [`LockError::InvalidSetting`] when the
/// lock is acquired.
///
/// What decides the types of a function is not in a policy: `on_busy`, `map_err`, and a function
/// for `on_lost`.
///
/// ```
/// # use std::time::Duration;
/// use lockmacro_runtime::{Lock, LockError, LockManager, LockPolicy};
///
/// pub const ORDERS: LockPolicy =
///     LockPolicy::new().ttl(Duration::from_secs(30)).renew().wait(Duration::from_secs(5));
/// /// As all orders, and nobody waits.
/// pub const DRAFTS: LockPolicy = ORDERS.wait(Duration::ZERO);
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::isolated_memory();
/// let guard = Lock::new("order:42").policy(ORDERS).manager(&locks).acquire().await?;
/// let busy = Lock::new("order:42").policy(DRAFTS).manager(&locks).acquire().await;
/// assert!(matches!(busy, Err(LockError::Busy { .. })));
/// # guard.release().await }
/// ```
///
/// [`LockError::InvalidSetting`]: crate::LockError::InvalidSetting
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use = "a policy does nothing until a lock has it"]
pub struct LockPolicy {
    pub(crate) ttl: Option<Duration>,
    pub(crate) renews: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) wait: Option<Duration>,
    pub(crate) on_lost: Option<OnLost>,
    pub(crate) releases_in_background: bool,
    /// `None`: exclusive, unless the lock says something else.
    pub(crate) mode: Option<Mode>,
}

impl LockPolicy {
    /// Creates a policy that sets nothing.
    ///
    /// ```
    /// # use lockmacro_runtime::LockPolicy;
    /// const PLAIN: LockPolicy = LockPolicy::new();
    /// assert_eq!(PLAIN, LockPolicy::default());
    /// ```
    pub const fn new() -> Self {
        Self {
            ttl: None,
            renews: false,
            max_hold: None,
            min_hold: None,
            wait: None,
            on_lost: None,
            releases_in_background: false,
            mode: None,
        }
    }

    /// Sets how long a lock may be held at most; with [`renew`](LockPolicy::renew) how long after
    /// the death of its holder it is free. 50 ms to 24 h. See [`Lock::ttl`](crate::Lock::ttl).
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Renews the lease, also where a function has a `ttl` of its own. See
    /// [`Lock::renew`](crate::Lock::renew).
    pub const fn renew(mut self) -> Self {
        self.renews = true;
        self
    }

    /// Sets when renewal ends. See [`Lock::max_hold`](crate::Lock::max_hold).
    pub const fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Sets how long the key is kept at least. See [`Lock::min_hold`](crate::Lock::min_hold).
    pub const fn min_hold(mut self, min_hold: Duration) -> Self {
        self.min_hold = Some(min_hold);
        self
    }

    /// Sets how long to wait when somebody else holds the lock; not at all with `Duration::ZERO`.
    ///
    /// It applies to functions with `on_busy = skip` as well, as a `wait` in their attribute does.
    /// See [`Lock::wait`](crate::Lock::wait).
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Waits without a limit. See [`Lock::wait_forever`](crate::Lock::wait_forever).
    pub const fn wait_forever(self) -> Self {
        self.wait(Duration::MAX)
    }

    /// Sets what happens to a body when its lock is lost. A function that is not async cannot be
    /// stopped: for such a function `Cancel` means `Error`. See
    /// [`Lock::on_lost`](crate::Lock::on_lost).
    pub const fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.on_lost = Some(on_lost);
        self
    }

    /// Shares the locks. A key whose mode was set already keeps it. See
    /// [`Lock::shared`](crate::Lock::shared).
    pub const fn shared(mut self) -> Self {
        self.mode = Some(Mode::Shared);
        self
    }

    /// Lets `permits` callers hold a lock at the same time, 1 to 10,000. A key whose mode was set
    /// already keeps it. See [`Lock::permits`](crate::Lock::permits).
    ///
    /// ```
    /// # use lockmacro_runtime::LockPolicy;
    /// const PRINTS: LockPolicy = LockPolicy::new().permits(3);
    /// ```
    pub const fn permits(mut self, permits: u32) -> Self {
        self.mode = Some(Mode::of_permits(permits));
        self
    }

    /// Returns the values of bodies without waiting for the release. See
    /// [`Lock::release_in_background`](crate::Lock::release_in_background).
    pub const fn release_in_background(mut self) -> Self {
        self.releases_in_background = true;
        self
    }

    /// What this policy sets, and what `other` sets beside it.
    pub(crate) const fn or(self, other: Self) -> Self {
        Self {
            ttl: or(self.ttl, other.ttl),
            renews: self.renews || other.renews,
            max_hold: or(self.max_hold, other.max_hold),
            min_hold: or(self.min_hold, other.min_hold),
            wait: or(self.wait, other.wait),
            on_lost: or(self.on_lost, other.on_lost),
            releases_in_background: self.releases_in_background || other.releases_in_background,
            mode: or(self.mode, other.mode),
        }
    }

    /// Whether the lease is renewed.
    pub(crate) const fn is_renewed(&self) -> bool {
        self.renews || self.ttl.is_none()
    }
}

/// Returns `policy`, and refuses one whose settings are wrong or contradict each other or the
/// attribute's other `arguments`, which win. A panic here is an error of the compiler.
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
    let both = arguments.or(policy);
    let lease = match both.ttl {
        Some(ttl) => ttl,
        None => TTL_DEFAULT,
    };
    let fault = if let Some(ttl) = policy.ttl
        && (is_less(ttl, TTL_MIN) || is_less(TTL_MAX, ttl))
    {
        "a `ttl` is between 50 ms and 24 h: correct that of the policy"
    } else if let Some(wait) = policy.wait
        && (is_less(WAIT_MAX, wait) && is_less(wait, Duration::MAX)
            || is_less(Duration::ZERO, wait) && is_less(wait, WAIT_MIN))
    {
        "a `wait` is between 1 ms and 24 h: correct that of the policy, or call `wait_forever()` \
         there"
    } else if let (Some(Duration::MAX), None) = (policy.wait, arguments.wait)
        && !matches!(on_busy.as_bytes(), b"error")
    {
        "`on_busy` is for when the wait is over, and that of the policy never is: write how long \
         to wait here, as in `wait = \"5s\"`, or remove `on_busy`"
    } else if let Some(Mode::Permits(permits)) = policy.mode
        && (permits == 0 || permits > PERMITS_MAX)
    {
        "`permits` is 1 to 10,000: correct that of the policy"
    } else if both.max_hold.is_some() && !both.is_renewed() {
        "`max_hold` is the end of renewal, and a lock with `ttl` is not renewed: add `renew` here \
         or in the policy, or remove `max_hold`"
    } else if let Some(max_hold) = both.max_hold
        && is_less(max_hold, lease)
        && is_less(lease, Duration::MAX)
    {
        "`max_hold` is the end of renewal, so it is at least the `ttl`, which is 30 s where none \
         is given: raise `max_hold` or lower `ttl`, here or in the policy"
    } else if let Some(min_hold) = both.min_hold
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

const fn or<T: Copy>(one: Option<T>, other: Option<T>) -> Option<T> {
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
            (NONE.wait(WAIT_MIN), None),
            (NONE.wait(WAIT_MIN - Duration::from_nanos(1)), Some("wait")),
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
