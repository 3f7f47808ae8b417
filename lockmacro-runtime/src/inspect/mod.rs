//! Inspection of locks from outside: which locks are held, by whom and for how much longer, and who
//! waits for them. [`LockManager::inspector`] is where to start, and
//! [`LockManager::force_release`] frees a lock by force. The tool `lockmacro`
//! (package `lockmacro-cli`) does the same from a terminal.
//!
//! Keys and patterns are those on the server: they begin with the manager's prefix if it has one.
//! The key of a guard or an error is such a whole key.
//!
//! Inspection works on one Redis server or cluster, such as one node of a Redlock, and on a
//! PostgreSQL database. Its answers are already old when they arrive, so do not decide by them
//! whether to use what a lock protects.
//!
//! ```no_run
//! use lockmacro_runtime::{LockError, LockManager};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), LockError> {
//!     let locks = LockManager::connect("redis://localhost").await?;
//!     for lock in locks.inspector().locks("order:*", 100).await?.items {
//!         println!("{}: {}, for {:?}", lock.key, lock.holder, lock.holder.free_within);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! [`LockManager::inspector`]: crate::LockManager::inspector
//! [`LockManager::force_release`]: crate::LockManager::force_release

// For readers of the source: no store knows of its inspection. The `inspector` asks which kind of
// store it has. `redis` and `postgres` read its locks and tell what is known of its servers.

mod clock_facts;
mod found;
mod inspection;
mod inspector;
#[cfg(feature = "defer")]
mod job_functions;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;

pub use found::{
    HeldLock, InspectedServer, Listing, QueuedWaiter, SKIPPED_MAX, ServerFacts, Skipped,
};
pub use inspector::Inspector;
#[cfg(feature = "postgres")]
pub use postgres::schema::{InstalledSchema, install_schema, schema};
#[cfg(feature = "redis")]
pub use redis::rights::{Use, rights};
