//! Settings of many locks in one constant.

use std::time::Duration;

use crate::value::loss::OnLost;
use crate::value::mode::Mode;

/// Settings that many locks share, as a constant: the defaults of a team in one place.
///
/// The functions have the names of those of [`Lock`](crate::Lock), and the same values. Functions
/// name the policy in the attribute, `policy = ORDERS`, where an argument beside it wins. Code
/// without the attribute calls [`Lock::policy`](crate::Lock::policy).
///
/// The attribute checks the policy together with its own arguments when the function is compiled:
/// a `ttl` out of bounds or a `min_hold` above the `ttl` does not compile. By hand a wrong value
/// fails where the same setting of a `Lock` does, such as [`LockError::InvalidTtl`] when the lock
/// is acquired.
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
/// # let locks = LockManager::memory();
/// let guard = Lock::new("order:42").policy(ORDERS).manager(&locks).acquire().await?;
/// let busy = Lock::new("order:42").policy(DRAFTS).manager(&locks).acquire().await;
/// assert!(matches!(busy, Err(LockError::Busy { .. })));
/// # guard.release().await }
/// ```
///
/// [`LockError::InvalidTtl`]: crate::LockError::InvalidTtl
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
}
