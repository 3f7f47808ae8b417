//! The holder of a busy lock. It is read from the value of the key: see [`token`](super::token).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use crate::value::escaped::Escaped;

/// The holder of a lock, as far as it is known: of [`LockError::Busy`] and [`LockError::TimedOut`],
/// and of a lock that was inspected.
///
/// Everything but [`free_within`](Holder::free_within) was written by the holder. Characters that
/// could act on a terminal are escaped, as in `\u{1b}`. `Display` shows owner and note.
///
/// [`LockError::Busy`]: crate::LockError::Busy
/// [`LockError::TimedOut`]: crate::LockError::TimedOut
///
/// ```
/// # use lockmacro_runtime::{Lock, LockError, LockManager};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let locks = LockManager::builder().label("web-3").isolated_memory();
/// let lock = Lock::new("order:42").name("audit").manager(&locks);
/// let guard = lock.clone().holder_note("Ann Example").acquire().await?;
/// let busy = lock.acquire().await.expect_err("it is held");
/// let holder = busy.holder();
/// assert_eq!(holder.owner.as_deref(), Some("web-3:audit"));
/// assert_eq!(holder.note.as_deref(), Some("Ann Example"));
/// assert_eq!(holder.to_string(), "web-3:audit (Ann Example)");
/// # guard.release().await }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The label of the holder's manager, by default `host:pid`, and the name of its lock, as in
    /// `web-3:4711:audit_order`; `None` when the value of the key was not written by this crate, or
    /// no holder can have a majority of a Redlock.
    pub owner: Option<String>,
    /// The holder's [note](crate::Lock::holder_note), if there is one.
    pub note: Option<String>,
    /// When the holder asked for the lock, by the clock of its machine and to a second: it has had
    /// the lock since then, or a later time. `None` for a foreign client.
    pub asked: Option<SystemTime>,
    /// Since when the lock is held, by the clock of the holder's machine and to a second; `None`
    /// for a foreign client, and for a holder that was ready to wait for the lock, as its token was
    /// made before the grant: see [`asked`](Holder::asked).
    pub since: Option<SystemTime>,
    /// The rest of the lease, unless the holder renews or releases it; `None` when a foreign client
    /// locked the key without an expiry, or no holder can have a majority of a Redlock. For an
    /// answer to a client use [`retry_after`](crate::LockError::retry_after).
    pub free_within: Option<Duration>,
    /// How many may hold the lock at once, as this holder has asked; `None` for a lock that is
    /// exclusive, or shared without a limit.
    pub permits: Option<u32>,
    /// Whether the holder has released the lock, which its [`min_hold`](crate::Lock::min_hold)
    /// keeps until [`free_within`](Holder::free_within) is over.
    pub is_kept: bool,
}

impl Holder {
    pub(crate) const UNKNOWN: Self = Self {
        owner: None,
        note: None,
        asked: None,
        since: None,
        free_within: None,
        permits: None,
        is_kept: false,
    };

    /// Makes a holder whose other fields are not known, for tests of code that handles one.
    ///
    /// ```
    /// use lockmacro_runtime::Holder;
    ///
    /// let mut holder = Holder::new("web-3:audit");
    /// holder.note = Some("Ann Example".to_owned());
    /// assert_eq!(holder.to_string(), "web-3:audit (Ann Example)");
    /// ```
    pub fn new(owner: impl Into<String>) -> Self {
        Self { owner: Some(owner.into()), ..Self::UNKNOWN }
    }

    /// The name of its lock, for a label of metrics: only one that [`note_name`] knows, as anybody
    /// may write any owner. Else empty.
    pub(crate) fn function(&self) -> Cow<'static, str> {
        let owner = self.owner.as_deref().unwrap_or_default();
        let names = NAMES.read().unwrap_or_else(PoisonError::into_inner);
        let mut parts = owner.match_indices(':').map(|(at, _)| &owner[at + 1..]);
        let known = parts.find_map(|name| names.get_key_value(name));
        known.map_or("".into(), |(name, _)| name.clone().into())
    }
}

/// The names of the locks that this process has asked for, each with the templates of its keys: as
/// many as the labels `name` and `template`.
static NAMES: RwLock<BTreeMap<String, BTreeSet<String>>> = RwLock::new(BTreeMap::new());

/// Makes the name of a lock known to [`Holder::function`], with the feature `metrics`. Returns
/// whether it is new with this template.
pub(crate) fn note_name(name: &str, template: &str) -> bool {
    let knows = || {
        let names = NAMES.read().unwrap_or_else(PoisonError::into_inner);
        names.get(name).is_some_and(|templates| templates.contains(template))
    };
    if cfg!(not(feature = "metrics")) || knows() {
        return false;
    }
    let mut names = NAMES.write().unwrap_or_else(PoisonError::into_inner);
    names.entry(name.to_owned()).or_default().insert(template.to_owned())
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Escaped(self.owner.as_deref().unwrap_or("a foreign client")).fmt(f)?;
        self.note.as_deref().map_or(Ok(()), |note| write!(f, " ({})", Escaped(note)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_that_this_process_has_used_is_a_label() {
        for name in ["shop::audit", "audit:all"] {
            note_name(name, "");
        }
        for (owner, function) in [
            ("web-3:4711:shop::audit", "shop::audit"),
            ("rack-1:shop::audit", "shop::audit"),
            ("web-3:4711:audit:all", "audit:all"),
            ("web-3:4711:audit", ""),
            ("ci:4711", ""),
            ("ci:1:job-4711", ""),
            ("web-3", ""),
            ("", ""),
        ] {
            assert_eq!(Holder::new(owner).function(), function, "{owner}");
        }
        assert_eq!(Holder::UNKNOWN.function(), "");
    }
}
