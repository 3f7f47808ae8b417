//! Jobs as values, the trait of their queue, and the queue in memory.

pub(crate) mod job;
pub(crate) mod job_queue;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod superseded;
