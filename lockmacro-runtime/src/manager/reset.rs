//! A fresh start between tests.

use crate::manager::lock_manager::LockManager;

impl LockManager {
    /// Forgets every lock, waiter and deferred call of `memory://`, and every hold time. For tests
    /// that share a manager, between one and the next. (Feature `test-util`.)
    ///
    /// - A lock that was held is lost, and its body stops. A lock on several keys finds so at its
    ///   next renewal, or at its release.
    /// - Callers that wait ask again.
    /// - Settings stay, and so do shutdowns. Fences grow on.
    /// - Background work goes by the clock of the next caller. So a manager in a `static`
    ///   serves one test with a paused clock after the other.
    /// - The locks on a server stay as well, as others may hold them: a WARN says so.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::memory();
    /// std::mem::forget(Lock::new("order:42").manager(&locks).acquire().await?);
    /// locks.reset();
    /// assert!(Lock::new("order:42").manager(&locks).acquire().await.is_ok());
    /// # Ok(()) }
    /// ```
    pub fn reset(&self) {
        if !self.core().reset() {
            tracing::warn!("locks on a server are not reset: only those of `memory://` are");
        }
    }
}
