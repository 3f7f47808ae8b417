//! A manager whose locks exclude nobody.

use crate::manager::lock_manager::LockManager;
use crate::store::dispatch::Store;
use crate::store::memory::Memory;

impl LockManager {
    /// Makes a manager that grants every lock at once and excludes nobody, for a test or a tool
    /// that runs annotated functions where locks do not matter.
    ///
    /// Bodies run under guards as usual: locks are renewed, can be joined, and end with their ttl;
    /// fences grow. No lock is ever busy, so no call waits, is skipped or is deferred. A WARN is
    /// logged when the manager is made.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::disabled();
    /// let lock = Lock::new("order:42").manager(&locks);
    /// let (one, first) = lock.clone().acquire_fenced().await?;
    /// let (other, second) = lock.acquire_fenced().await?;
    /// assert!(one.is_held() && other.is_held() && first < second);
    /// # one.release().await?;
    /// # other.release().await }
    /// ```
    pub fn disabled() -> Self {
        tracing::warn!("locks are disabled: this manager grants every lock and excludes nobody");
        Self::builder().with(Store::Memory(Memory::disabled()))
    }

    /// Returns whether this manager excludes nobody: see [`disabled`](LockManager::disabled).
    ///
    /// ```
    /// # use lockmacro_runtime::LockManager;
    /// assert!(LockManager::disabled().is_disabled());
    /// assert!(!LockManager::memory().is_disabled());
    /// ```
    pub fn is_disabled(&self) -> bool {
        self.core().store().excludes_nobody()
    }
}
