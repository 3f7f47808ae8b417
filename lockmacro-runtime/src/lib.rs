//! Distributed locks with leases, fencing tokens and fair queues, on Redis, PostgreSQL or etcd.
//!
//! A program needs two things from this crate: a [`LockManager`], which it connects and installs
//! when it starts, and the attribute `#[distributed_lock]` on each function that must not run twice
//! at once. The attribute runs the body under a [`Lock`], which can also be used by hand.
//! [`LockError`] lists everything that can go wrong.
//!
//! If the lock is busy, the caller gets an error, or what `on_busy` says. If the lock is lost while
//! the body runs, an async body stops at its next await, and the caller gets an error.
//!
#![cfg_attr(feature = "macros", doc = "```")]
#![cfg_attr(not(feature = "macros"), doc = "```ignore")]
//! use lockmacro_runtime::{LockError, LockManager, distributed_lock};
//!
//! #[distributed_lock(key = "order:<id>", ttl = "300s")]
//! async fn audit_order(id: u64) -> Result<String, LockError> {
//!     Ok(format!("order {id} is audited"))
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), LockError> {
//!     LockManager::connect("memory://").await?.install()?;
//!     assert_eq!(audit_order(42).await?, "order 42 is audited");
//!     Ok(())
//! }
//! ```
//!
//! The [guide] is in reading order. Good starts are the [first lock](guide::first_lock),
//! [leases](guide::leases), and [fences](guide::fences) for data that must not be written late.
//!
//! # How to
//!
//! | to | in the attribute | by hand |
//! |---|---|---|
//! | try once | the default, `wait = never` | the default |
//! | wait | `wait = "5s"` | [`Lock::wait`] |
//! | hold a lock over two functions | the inner one [joins](guide::first_lock#re-entry) the outer one | [`Lock::acquire`] |
//! | hold it for as long as the work takes | no `ttl`, or `renew` | [`Lock::renew`] |
//! | stop when it is lost | the default, at the next await; `guard = lock` to look at it | [`LockGuard::lost`], [`LockGuard::check`] |
//! | skip a call that another machine makes | `on_busy = skip` | [`Lock::try_run`] |
//! | refuse a late writer | `fence = fence` | [`Lock::fenced`] |
//! | test without a server | nothing: call it in [`LockManager::scope`] | [`LockManager::isolated_memory`] |
//! | shut down on SIGTERM | – | [`LockManager::shutdown`] |
//!
//! # Guarantees
//!
//! Two callers never hold the same exclusive lock at once, on two conditions:
//!
//! - the *rates* of the clients' clocks differ by less than 0.5 %;
//! - the server neither loses acknowledged writes nor jumps its clock.
//!
//! On etcd the second one holds by itself, unless most of its nodes lose their disks. Outside of
//! these conditions, no lock with a lease can guarantee exclusion. A body that cannot be
//! [stopped](guide::leases#what-cannot-be-stopped) may run on after its lock is lost. A resource
//! that checks the [fence](mod@fence) refuses the writes of such a body as soon as the next holder
//! has written, unless the server has [lost the last fence](guide::fences#how-long-fences-grow) and
//! its clock is behind.
//!
//! # Features
//!
//! - `macros` (on by default): the attribute.
//! - `redis` (on by default): locks on Redis servers. A program with all its locks in PostgreSQL,
//!   etcd or a store of its own builds no client of Redis if it sets `default-features = false`.
//! - `defer`: `on_busy = defer("30s")`, and the worker for it.
//! - `reuse`: `on_busy = reuse`, by which callers [share a value](guide::reuse).
//! - `inspect`: inspection of locks, their holders and their waiters. The
//!   [tool](guide::tool) shows them in a terminal.
//! - `axum`: a [`LockError`] is a response of axum 0.8.
//! - `serde`: a [`Fence`] can be serialized.
//! - `tls`: encrypted connections to Redis, `rediss://`.
//! - `postgres`: locks in a [PostgreSQL](guide::postgres) database, `postgres://`.
//! - `postgres-tls`: the same with encrypted connections.
//! - `redis-1`: `LockManagerBuilder::from_redis`, which takes a client of `redis` 1.x.
//! - `metrics`: [counters, gauges and histograms](guide::metrics) by the `metrics` crate.
//! - `test-util`: leases in virtual time, [for tests](guide::testing#virtual-time).

#![forbid(unsafe_code)]
#![warn(missing_docs)]
// What stores share is more than each of them needs. A build with Redis needs all of it, and finds
// what nobody uses any more.
#![cfg_attr(not(feature = "redis"), expect(dead_code))]
#![cfg_attr(docsrs, feature(doc_cfg))]

// Before other modules with methods of it, so that the page of `LockManager` begins with `connect`.
mod manager;

#[cfg(feature = "axum")]
mod axum;
#[cfg(feature = "defer")]
pub mod defer;
/// Without jobs, what others keep for them is nothing.
#[cfg(not(feature = "defer"))]
mod defer {
    pub(crate) type Jobs = std::marker::PhantomData<()>;
    pub(crate) type MemoryJobs = std::marker::PhantomData<()>;
}
mod engine;
mod expansion;
mod guard;
#[cfg(doc)]
pub mod guide;
#[cfg(feature = "inspect")]
pub mod inspect;
mod lock;
mod outcome;
mod protocol;
#[cfg(feature = "reuse")]
mod reuse;
/// Without kept values, what others hold for them is nothing.
#[cfg(not(feature = "reuse"))]
mod reuse {
    pub(crate) type Noted = std::marker::PhantomData<()>;
    pub(crate) type Values = std::marker::PhantomData<()>;
}
mod run;
mod run_policy;
pub mod store;
mod sys;
#[cfg(feature = "test-util")]
pub mod testing;
mod value;

/// Replaces the system in a deterministic simulation of whole programs. Not part of the public API:
/// it may change in any release.
#[cfg(all(lockmacro_simulation, feature = "test-util"))]
#[doc(hidden)]
pub mod simulation {
    #[cfg(all(feature = "defer", feature = "redis"))]
    pub use crate::defer::queue::redis::scripts::scripts;
    pub use crate::sys::world::{Entered, Opening, Stream, Task, World, enter};
}

pub use guard::LockGuard;
pub use lock::Lock;
#[cfg(feature = "macros")]
pub use lockmacro::distributed_lock;
pub use manager::LockManagerBuilder;
#[cfg(feature = "redis-1")]
pub use manager::RedisServer;
pub use manager::lock_manager::LockManager;
pub use outcome::{LockOutcome, SkipOutcome};
#[cfg(feature = "reuse")]
pub use reuse::ReusingLock;
pub use value::error::{LockError, NodeReply, UnavailableReason};
pub use value::fence::{self, Fence};
pub use value::holder::Holder;
pub use value::key::LockKey;
pub use value::loss::{LossCause, Lost, OnLost};
pub use value::template::LockTemplate;

/// Items that expansions of the attribute need beyond the public API. They belong to the macro of
/// the same version, which Cargo selects.
#[doc(hidden)]
pub mod __private {
    pub use crate::expansion::constant_key;
    pub use crate::outcome::outcome;
    use crate::run_policy::AnyResult;
    // For `crate = path`: a wrong path gives one error message, at the path.
    pub use crate::*;

    /// Fails to compile: the attribute is on an expression, which it cannot lock. A compiler that
    /// allows no attributes on expressions reports that before this is evaluated.
    pub fn misplaced<T>() {
        struct Misplaced<T>(T);
        impl<T> Misplaced<T> {
            const REFUSED: () =
                panic!("`#[distributed_lock]` goes on a function: move this into one");
        }
        Misplaced::<T>::REFUSED
    }

    /// Checks the type of the function given as `map_err`, so that an error points at its path.
    pub fn map<R: AnyResult<Error = E>, E>(
        map: fn(crate::LockError) -> E,
    ) -> fn(crate::LockError) -> E {
        map
    }

    /// Checks the type of the function given as `on_lost`, so that an error points at its path.
    pub fn recover<R>(recover: fn(crate::Lost, R) -> R) -> fn(crate::Lost, R) -> R {
        recover
    }
}
