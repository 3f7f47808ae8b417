//! What a manager and its builder say of jobs.

use std::sync::Arc;

use crate::defer::job_queue::JobQueue;
use crate::manager::builder::LockManagerBuilder;
use crate::manager::lock_manager::LockManager;

/// Settings of jobs, with the feature `defer`.
impl LockManagerBuilder {
    /// Sets where jobs are kept, instead of in the locks' own store.
    pub fn job_queue(mut self, job_queue: Arc<dyn JobQueue>) -> Self {
        self.jobs.given = Some(job_queue);
        self
    }

    /// Sets how many bytes the arguments of one job may have as JSON, by default 1 MiB.
    ///
    /// A larger job is refused with [`LockError::InvalidSetting`]. A worker gives the server more
    /// time to send larger jobs, a second for 4 MiB, so use the same value for the workers.
    ///
    /// [`LockError::InvalidSetting`]: crate::LockError::InvalidSetting
    pub fn max_job_size(mut self, bytes: usize) -> Self {
        self.jobs.max_size = bytes;
        self
    }
}

/// Jobs, with the feature `defer`.
impl LockManager {
    /// Returns the queue of jobs, to store jobs, to inspect them, and to run dead ones
    /// again.
    ///
    /// ```no_run
    /// # use lockmacro_runtime::defer::JobState;
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # async fn inspect(locks: LockManager) -> Result<(), LockError> {
    /// let dead = locks.job_queue().list("orders.audit".into(), JobState::Dead, 0, 100).await?;
    /// println!("{} dead jobs", dead.total);
    /// # Ok(()) }
    /// ```
    pub fn job_queue(&self) -> Arc<dyn JobQueue> {
        self.core().jobs.queue(&self.core().store)
    }
}

/// The name under which jobs of a function are stored. It has the manager's prefix, so that
/// services on one server do not run each other's calls.
pub(crate) fn stored_as(manager: &LockManager, function: &str) -> Arc<str> {
    [&manager.core().defaults.prefix, function].concat().into()
}
