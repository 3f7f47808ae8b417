//! The rights of the user, as far as they are known.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::protocol::request::Request;
#[cfg(feature = "defer")]
use crate::value::key::LockKey;
use crate::value::random::HashSet;
use crate::value::sync::Mutex;

/// The user's rights: a lock that the user can acquire may not be releasable, where its companion
/// keys are denied.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    pub(crate) asked: AtomicBool,
    /// The user may run all commands.
    pub(crate) commands: AtomicBool,
    /// The user may use every key.
    pub(crate) every_key: AtomicBool,
    /// It was logged that waiters are served slowly.
    pub(crate) slow: AtomicBool,
    /// It was logged that the user may use channels of others.
    pub(crate) wide: AtomicBool,
    /// Templates of keys whose companion keys the user may use, too.
    pub(crate) templates: Mutex<HashSet<Cow<'static, str>>>,
    /// Functions whose deferred calls the user may store and take, by the keys of their calls.
    #[cfg(feature = "defer")]
    pub(crate) functions: Mutex<HashSet<LockKey>>,
}

impl Rights {
    /// Whether a grant by a plain SET can be released. Otherwise the script has to be called: the
    /// server refuses it before the grant if a companion key is denied.
    pub(crate) fn covers(&self, request: &Request) -> bool {
        self.every_key.load(Ordering::Relaxed) || {
            let templates = self.templates.lock();
            templates.contains(request.key.made_of())
        }
    }

    /// Notes that the script was not refused for this lock.
    pub(crate) fn learn(&self, request: &Request) {
        if !request.key.made_of().is_empty() && !self.every_key.load(Ordering::Relaxed) {
            let mut templates = self.templates.lock();
            templates.insert(request.key.shared_template());
        }
    }

    pub(crate) fn are_known(&self) -> bool {
        self.commands.load(Ordering::Relaxed)
    }
}
