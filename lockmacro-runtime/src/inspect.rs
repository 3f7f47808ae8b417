//! Looking at locks from outside: which are held, by whom and for how much longer, and who waits. And
//! freeing one by force. The tool `lockmacro` (feature `cli`) does this from a terminal.
//!
//! Keys and patterns are those on the server, so they begin with the manager's prefix if it has one; the
//! key of a guard or an error is such a whole key.
//!
//! It is for one Redis server or cluster, such as one node of a Redlock. What is told was so a moment ago: nothing here decides whether
//! a lock may be taken.
//!
//! ```no_run
//! use lockmacro_runtime::{LockError, LockManager};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), LockError> {
//!     let locks = LockManager::connect("redis://localhost").await?;
//!     for lock in locks.held("order:*", 100).await?.found {
//!         println!("{}: {:?}, for {:?}", lock.key, lock.owner, lock.left);
//!     }
//!     Ok(())
//! }
//! ```

use std::sync::Arc;

use crate::manager::lock_manager::LockManager;
use crate::protocol::answer::Released;
use crate::protocol::request::Request;
use crate::store::dispatch::Store;
pub use crate::store::redis::acl::Use;
use crate::store::redis::store::Redis;
use crate::value::error::LockError;
pub use crate::value::inspection::{Found, HeldLock, ODD_MAX, Odd, QueuedWaiter};
use crate::value::key::LockKey;
use crate::value::limits::TTL_MIN;

/// The keys, channels and commands that a user needs for locks with a pattern of keys, as `ACL
/// SETUSER` takes them. The tool prints them by `lockmacro acl 'order:*'`.
///
/// ```
/// use lockmacro_runtime::inspect::{Use, rights};
///
/// let rights = rights("order:*", &[Use::Wait])?;
/// assert!(rights.starts_with("~order:* ~lm1:w?:{order:*} "));
/// # Ok::<(), lockmacro_runtime::LockError>(())
/// ```
///
/// # Errors
/// [`LockError::InvalidKey`] for a pattern that `ACL SETUSER` cannot take: an empty one, or one
/// with blanks or control characters; and for the engine's own keys, `lm1:`.
pub fn rights(pattern: &str, uses: &[Use]) -> Result<String, LockError> {
    LockKey::from(pattern).check()?;
    if pattern.contains(|c: char| c.is_whitespace() || c.is_control()) {
        let detail = "no rule can name keys with blanks or control characters: use `?` for each";
        return Err(LockError::InvalidKey { detail: detail.to_owned() });
    }
    Ok(crate::store::redis::acl::rights(pattern, uses).join(" "))
}

/// Looking at locks, with the feature `look`. Each of these functions
///
/// - fails with [`LockError::InvalidUrl`] where locks are not kept on one Redis server or cluster,
///   with [`LockError::AccessDenied`] where the user lacks `+scan`, `+getrange` or one of the keys, and
///   with what is wrong with the server;
/// - can be dropped at any time.
impl LockManager {
    /// The locks whose keys match a pattern as Redis has them (`order:*`), at most `most`. All keys of
    /// the server are gone through, by SCAN.
    pub async fn held(&self, pattern: &str, most: usize) -> Result<Found<HeldLock>, LockError> {
        self.server()?.held(pattern, false, most).await
    }

    /// The same with the strings that this crate did not write. Not every one of them is a lock.
    pub async fn held_or_foreign(
        &self,
        pattern: &str,
        most: usize,
    ) -> Result<Found<HeldLock>, LockError> {
        self.server()?.held(pattern, true, most).await
    }

    /// What holds a key; `None` when nothing does.
    ///
    /// # Errors
    /// Also [`LockError::InvalidKey`], and [`LockError::KeyNotALock`] for another type of value.
    pub async fn holder(&self, key: impl Into<LockKey>) -> Result<Option<HeldLock>, LockError> {
        let key = key.into();
        key.check()?;
        self.server()?.holder(&key).await
    }

    /// Who waits for a key, the next one first: at most `most`, and at most 1,000.
    ///
    /// # Errors
    /// Also [`LockError::InvalidKey`], and [`LockError::KeyNotALock`] when there is something else in the
    /// place of the line.
    pub async fn waiting(
        &self,
        key: impl Into<LockKey>,
        most: usize,
    ) -> Result<Found<QueuedWaiter>, LockError> {
        let key = key.into();
        key.check()?;
        self.server()?.queue(&key, most).await
    }

    /// Takes a lock away from its holder and gives it to who waits longest; tells whether it was still
    /// that holder's. It does not stop the holder's body, which learns of it at its next renewal or not
    /// before its end: make sure first that the holder is dead, or does no harm.
    ///
    /// # Errors
    /// Also [`LockError::KeyNotALock`] for a value that this crate did not write.
    pub async fn take_away(&self, lock: &HeldLock) -> Result<bool, LockError> {
        self.server()?;
        let HeldLock { key, token, .. } = lock;
        let Some(token) = token else { return Err(LockError::KeyNotALock { key: key.clone() }) };
        // Nothing is granted here: the ttl is never sent.
        let request = Request::new(key.clone(), token.clone(), TTL_MIN);
        // What an unanswered try has released was held.
        Ok(self.core().store().release(&request).await? != Released::NotHeld)
    }

    /// The names of the functions that have deferred calls in the locks' own store, at most `most`.
    #[cfg(feature = "defer")]
    pub async fn deferred_functions(&self, most: usize) -> Result<Found<String>, LockError> {
        self.server()?.deferred_functions(most).await
    }

    fn server(&self) -> Result<&Arc<Redis>, LockError> {
        match self.core().store() {
            Store::Redis(redis) => Ok(redis),
            _ => {
                let detail = "only the locks of one Redis server or cluster can be looked at";
                Err(LockError::InvalidUrl { detail: detail.to_owned() })
            }
        }
    }
}
