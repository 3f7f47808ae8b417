//! Jobs: `on_busy = defer("30s")` runs a call whose lock is busy later.
//!
//! The job is stored with its arguments in the lock's Redis (or in memory, for `memory://`). A
//! [`Worker`] of any process runs the same function later, under the same lock.
//!
//! - A job runs *at least once*. When its worker dies, another worker runs it again, so it may
//!   have run before, in part or to its end.
//! - A job that fails is tried again after a growing delay. After its last attempt it is dead:
//!   it is kept with its last error, for a person to inspect ([`JobQueue::list`]).
//! - A job whose lock is busy again, or whose server fails, does not count as tried. It is due
//!   again after about its first delay, or soon after the holder's lease ends if that is earlier.
//!   After 1,000 times it is dead as well.
//!
//! # Trust
//!
//! Jobs are not signed. A client that can write the queue's keys, `lm1:jobs:<function>` and their
//! companions, can make a worker run any function that is [registered](Worker::register) with it,
//! with any arguments that the types of its arguments accept, as often as it likes; can remove or
//! change jobs that wait; and can read all arguments. A worker runs no other function, and never
//! code from the queue. So treat the right to write these keys as the right to call the functions:
//!
//! - Grant it to the programs that store or run jobs and to nobody else, by an ACL or a server of
//!   their own. `lockmacro acl 'order:*' --features wait,defer` prints such an ACL; it covers the
//!   jobs of *all* functions.
//! - In the body, check what a caller must be allowed to do, as if the arguments came from the
//!   network. That the first caller was checked before the call was deferred proves nothing.
//! - Store no secrets as arguments: store an id, and look the rest up in the body.
//!
#![cfg_attr(feature = "macros", doc = "```")]
#![cfg_attr(not(feature = "macros"), doc = "```ignore")]
//! use std::time::Duration;
//! use lockmacro_runtime::defer::Worker;
//! use lockmacro_runtime::{Lock, LockError, LockManager, distributed_lock};
//!
//! #[distributed_lock(key = "order:<id>", ttl = "10s", on_busy = defer("20ms"))]
//! async fn audit_order(id: u64) -> Result<(), LockError> {
//!     Ok(println!("order {id} is audited"))
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), LockError> {
//!     let locks = LockManager::connect("memory://").await?;
//!     locks.install()?;
//!     let held = Lock::new("order:42").acquire().await?;
//!     let deferred = audit_order(42).await;
//!     assert!(matches!(deferred, Err(LockError::Deferred { .. })));
//!     held.release().await?;
//!
//!     // In a service: `tokio::spawn(worker.run())`.
//!     let worker = Worker::new(&locks).register(audit_order_deferred());
//!     worker.run_until(tokio::time::sleep(Duration::from_millis(200))).await
//! }
//! ```

mod arguments;
mod function;
mod job;
pub(crate) mod job_queue;
mod job_run;
mod jobs;
mod limits;
mod manager;
mod metrics;
mod outcome;
pub(crate) mod queue;
mod running;
mod worker;

pub use arguments::{Argument, Arguments, Storable, argument};
pub use function::DeferredFn;
pub use job::{Job, JobInfo, JobState, Keep, NewJob, Page, Settled, Stored, TakeOptions, When};
pub use job_queue::{JobFuture, JobQueue, StopWaiting};
pub(crate) use jobs::Jobs;
pub use limits::{DEAD_MAX, WAITING_MAX};
pub use outcome::JobOutcome;
pub(crate) use queue::memory::MemoryJobs;
pub use worker::Worker;
