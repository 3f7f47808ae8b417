//! A store of one's own, where locks are kept in a place that this crate does not know.
//!
//! A [`LockStore`] is asked for three things: to grant a key to a token for a while, to renew the
//! grant, and to release it. Each is one atomic step, idempotent by the token, and asked once. The
//! store has to know which token holds a key and until when, by a clock of its own.
//!
//! The engine does what is left: a caller's wait, with an exact order of arrival among the callers
//! of a process; turns, by which one grant serves many of them; renewal, and the notice of a loss;
//! `min_hold`; several keys, all or none; re-entry; blocking callers; limits of time, retries and
//! outages; and the release of what was dropped. Between processes a waiter asks again after 25 to
//! 100 ms, or when the store says that the key [may be free](LockStore::freed).
//!
//! Shared locks and permits, jobs, kept values and inspection need one of the stores of
//! this crate. [`LockManagerBuilder::connect_store`] makes a manager of a store, and
//! `testing::conformance` tells whether the store is right.
//!
//! [`LockManagerBuilder::connect_store`]: crate::LockManagerBuilder::connect_store

// For readers of the source.
//
// The engine asks a `handle::Store`, which puts together what takes more than one call: several
// keys, and the acknowledgement of replicas. Below it a `backend::Backend` answers one call:
// `memory` in this process, `redis` on a server or a cluster, `redlock` on a majority of servers,
// PostgreSQL, or `lock_store` for a store of somebody else. These do not know each other, but for a
// Redlock, whose nodes are Redis servers. What they need to ask a server is in `remote`: time
// limits, retries, the health of a server, and the wait of a waiter between its calls.

pub(crate) mod backend;
pub(crate) mod handle;
mod join;
pub(crate) mod lock_store;
pub(crate) mod memory;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "redis")]
pub(crate) mod redlock;
pub(crate) mod remote;
mod replica_acks;
mod several_keys;
pub(crate) mod shutdown;
pub(crate) mod subscriptions;
mod tick;

pub use lock_store::{AcquireRequest, HeldKey, LockStore, Outcome, StoreError, StoreLimits};
