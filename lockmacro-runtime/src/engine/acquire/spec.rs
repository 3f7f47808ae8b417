//! The description of a lock: its keys, and how to acquire it.

use std::borrow::Cow;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::manager::Manager;
use crate::value::key::LockKey;
use crate::value::loss::OnLost;
use crate::value::policy::LockPolicy;

/// The description of a lock: its keys and its options.
#[derive(Debug, Clone)]
pub struct LockSpec {
    pub(crate) key: LockKey,
    /// Further keys, in the caller's order.
    pub(crate) more: Box<[LockKey]>,
    /// `None`: the manager's.
    pub(crate) ttl: Option<Duration>,
    /// `None`: renewed.
    pub(crate) renewed: Option<bool>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Duration,
    pub(crate) on_lost: OnLost,
    /// The body's value is returned without waiting for the release.
    pub(crate) releases_in_background: bool,
    /// `None`: the manager's; zero: not at all.
    pub(crate) wait: Option<Duration>,
    pub(crate) name: Cow<'static, str>,
    pub(crate) message: Option<Cow<'static, str>>,
    pub(crate) holder_note: Option<String>,
    pub(crate) manager: Option<Arc<Manager>>,
}

impl LockSpec {
    /// A lock with these keys, and defaults for everything else. Never inlined, as every annotated
    /// function calls it.
    #[inline(never)]
    pub(crate) fn new(key: LockKey, more: Box<[LockKey]>) -> Box<Self> {
        Box::new(Self {
            key,
            more,
            ttl: None,
            renewed: None,
            max_hold: None,
            min_hold: Duration::ZERO,
            on_lost: OnLost::default(),
            releases_in_background: false,
            wait: None,
            name: Cow::Borrowed(""),
            message: None,
            holder_note: None,
            manager: None,
        })
    }

    /// Sets what a policy sets. Never inlined, for the same reason.
    #[inline(never)]
    pub(crate) fn set(&mut self, policy: LockPolicy) {
        if policy.renews {
            self.renewed = Some(true);
        } else if policy.ttl.is_some() {
            self.renewed.get_or_insert(false);
        }
        self.ttl = policy.ttl.or(self.ttl);
        self.max_hold = policy.max_hold.or(self.max_hold);
        self.min_hold = policy.min_hold.unwrap_or(self.min_hold);
        self.on_lost = policy.on_lost.unwrap_or(self.on_lost);
        self.releases_in_background |= policy.releases_in_background;
        self.wait = policy.wait.or(self.wait);
        for key in iter::once(&mut self.key).chain(&mut self.more) {
            // A key of several may have a mode of its own.
            if let Some(mode) = policy.mode
                && key.own_mode().is_none()
            {
                *key = key.clone().with_mode(mode);
            }
        }
    }

    /// All keys, in the caller's order.
    pub(crate) fn keys(&self) -> Vec<LockKey> {
        iter::once(&self.key).chain(&self.more).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::mode::Mode;

    fn spec() -> Box<LockSpec> {
        LockSpec::new("order:42".into(), Box::default())
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn a_policy_sets_all_that_it_has_and_nothing_else() {
        let all = LockPolicy::new()
            .ttl(secs(1))
            .renew()
            .max_hold(secs(2))
            .min_hold(secs(3))
            .wait(secs(4))
            .permits(5)
            .on_lost(OnLost::Finish)
            .release_in_background();
        let mut spec = spec();
        for policy in [all, LockPolicy::new()] {
            spec.set(policy);
            assert_eq!((spec.ttl, spec.renewed), (Some(secs(1)), Some(true)));
            assert_eq!((spec.max_hold, spec.min_hold), (Some(secs(2)), secs(3)));
            assert_eq!((spec.wait, spec.on_lost), (Some(secs(4)), OnLost::Finish));
            assert_eq!((spec.key.mode(), spec.releases_in_background), (Mode::Permits(5), true));
        }
    }

    #[test]
    fn a_ttl_of_a_policy_is_not_renewed_unless_it_says_so() {
        for (policy, renewed) in [
            (LockPolicy::new(), None),
            (LockPolicy::new().ttl(secs(1)), Some(false)),
            (LockPolicy::new().renew(), Some(true)),
            (LockPolicy::new().ttl(secs(1)).renew(), Some(true)),
        ] {
            let mut spec = spec();
            spec.set(policy);
            assert_eq!(spec.renewed, renewed, "{policy:?}");
        }
    }
}
