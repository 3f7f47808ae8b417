//! Locks of [`lockmacro`](https://docs.rs/lockmacro-runtime) in an etcd cluster.
//!
//! ```no_run
//! use lockmacro_etcd::EtcdOptions;
//! use lockmacro_runtime::Lock;
//!
//! # async fn example() -> Result<(), lockmacro_runtime::LockError> {
//! let nodes = ["http://etcd-1:2379", "http://etcd-2:2379", "http://etcd-3:2379"];
//! let locks = lockmacro_etcd::connect(nodes, EtcdOptions::default()).await?;
//! let guard = Lock::new("order:42").manager(&locks).acquire().await?;
//! guard.release().await
//! # }
//! ```
//!
//! A majority of the nodes decides on each lock, so that no failover grants a lock twice, and a
//! jump of a server's clock ends none. It needs etcd 3.4.31, 3.5.13, 3.6.0 or later: before, a leader
//! that was stuck can end a lease that was renewed. A ttl is a whole number of seconds, from two on.
#![forbid(unsafe_code)]

mod api;
mod client;
mod error;
mod grpc;
mod options;
mod store;
#[cfg(feature = "tls")]
mod tls;
mod watch;
mod wire;

use lockmacro_runtime::{LockError, LockManager};

pub use options::EtcdOptions;
pub use store::EtcdStore;

/// Connects a manager to the etcd cluster with these nodes, each `http://host:port`, or
/// `https://host:port` with the feature `tls`.
///
/// For more settings of the manager, give an [`EtcdStore`] to
/// [`connect_store`](lockmacro_runtime::LockManagerBuilder::connect_store).
///
/// # Errors
/// [`LockError::Unavailable`] if no node answers within the [timeout](EtcdOptions::timeout),
/// [`LockError::AccessDenied`] if the login fails, or its user may not read and write keys with the
/// [prefix](EtcdOptions::prefix), and [`LockError::InvalidSetting`] for a wrong endpoint or option.
pub async fn connect<E: Into<String>>(
    endpoints: impl IntoIterator<Item = E>,
    options: EtcdOptions,
) -> Result<LockManager, LockError> {
    let builder = LockManager::builder().timeout(options.timeout);
    builder.connect_store(EtcdStore::new(endpoints, options)).await
}
