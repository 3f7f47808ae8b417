//! Where the jobs of a manager are kept: in the queue that its builder was given, or beside its
//! locks. No store knows of jobs: the queue of each kind of store is made here, over that store.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use crate::defer::job_queue::{JOB_QUEUE, JobQueue};
use crate::defer::limits::SIZE_MAX;
use crate::defer::queue::none::NoQueue;
#[cfg(feature = "postgres")]
use crate::defer::queue::postgres::PostgresJobs;
#[cfg(feature = "redis")]
use crate::defer::queue::redis::RedisJobs;
use crate::store::handle::Store;
use crate::store::memory::Memory;
#[cfg(feature = "postgres")]
use crate::store::postgres::store::Postgres;
#[cfg(feature = "redis")]
use crate::store::redis::store::Redis;
use crate::value::error::LockError;

/// The settings of jobs, and their queue.
#[derive(Debug, Clone)]
pub(crate) struct Jobs {
    /// The queue that the builder was given.
    pub(crate) given: Option<Arc<dyn JobQueue>>,
    /// Most bytes in the arguments of one job.
    pub(crate) max_size: usize,
    /// The queue beside the locks. It is one, because it keeps what its workers wait by.
    beside: OnceLock<Arc<dyn JobQueue>>,
}

impl Default for Jobs {
    fn default() -> Self {
        Self { given: None, max_size: SIZE_MAX, beside: OnceLock::new() }
    }
}

impl Jobs {
    /// The queue of a manager whose locks are in `store`.
    pub(crate) fn queue(&self, store: &Store) -> Arc<dyn JobQueue> {
        let beside = || self.beside.get_or_init(|| self.beside(store));
        Arc::clone(self.given.as_ref().unwrap_or_else(beside))
    }

    /// The same for the background thread, whose `store` has a connection of its own.
    pub(crate) fn queue_apart(&self, store: &Store) -> Arc<dyn JobQueue> {
        self.given.clone().unwrap_or_else(|| self.beside(store))
    }

    /// A queue in the same store as the locks.
    fn beside(&self, store: &Store) -> Arc<dyn JobQueue> {
        let kind: Arc<dyn Any + Send + Sync> = Arc::clone(&store.backend) as _;
        #[cfg(feature = "redis")]
        if let Ok(redis) = Arc::clone(&kind).downcast::<Redis>() {
            return Arc::new(RedisJobs::new(redis, self.max_size));
        }
        #[cfg(feature = "postgres")]
        if let Ok(postgres) = Arc::clone(&kind).downcast::<Postgres>() {
            return Arc::new(PostgresJobs::new(postgres, self.max_size));
        }
        if let Some(memory) = kind.downcast_ref::<Memory>() {
            return Arc::new(memory.jobs.clone());
        }
        let detail = "cannot keep jobs: give its builder the queue of a single Redis server's \
            manager, `.job_queue(other.job_queue())`";
        let of_redlock = || LockError::invalid(JOB_QUEUE, format!("a Redlock {detail}"));
        Arc::new(NoQueue(store.backend.refusal(JOB_QUEUE, detail).unwrap_or_else(of_redlock)))
    }
}
