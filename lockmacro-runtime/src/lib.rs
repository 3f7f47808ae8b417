//! The engine of lockmacro: distributed locks on Redis. A body never runs without its lock, and the
//! loss of a lock never goes unnoticed.
//!
//! Most programs need two things from this crate:
//!
//! - a [`LockManager`], connected and installed when the program starts;
//! - the attribute `#[distributed_lock]`, on each function that must not run twice at once.
//!
//! The attribute expands to a [`Lock`], which can also be used by hand. [`LockError`] lists
//! everything that can go wrong.
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
//! # Guarantees
//!
//! Two bodies under the same key never overlap, on two conditions:
//!
//! - the *rates* of the clients' clocks differ by less than 0.5 %;
//! - the server neither loses acknowledged writes nor jumps its clock.
//!
//! Outside of these conditions no Redis lock can guarantee exclusion. A resource that checks the
//! [fence](mod@fence) is still safe, because the fence of each grant is larger than every earlier
//! one. Fences stop growing only if the server has lost the last fence and its clock was set back
//! as well.
//!
//! # Waiting
//!
//! A request for a busy lock fails at once, or [waits](Lock::wait) in a queue, in the order of
//! arrival and without polling. Callers of one manager queue inside the process. A released lock
//! passes to the next of them without a command, for a bounded [turn](LockManagerBuilder::turn).
//! Then a release hands the lock off to the next process in the same script, and the server pushes
//! the grant to that process alone.
//!
//! # Several keys
//!
//! `key = ["account:<from>", "account:<to>"]` and `key = keys(iterator)` lock several keys, all or
//! none of them. [`Lock::many`] does the same, and explains how such a lock waits without a
//! deadlock.
//!
//! # Several servers
//!
//! [`LockManager::redlock`] acquires locks on a majority of independent servers, so that locks are
//! granted while a minority of the servers is down.
//!
//! # Features
//!
//! - `macros` (on by default): the attribute.
//! - `defer`: `on_busy = defer("30s")`, and the worker for it.
//! - `look`: inspection of locks, their holders and their waiters.
//! - `cli`: the tool `lockmacro`, which shows locks in a terminal.
//! - `serde`: a [`Fence`] can be serialized.
//! - `tls`: encrypted connections, `rediss://`.
//! - `metrics`: the metrics below, recorded with the `metrics` crate.
//! - `test-util`: leases in virtual time, for tests; see below.
//!
//! # Tests in virtual time
//!
//! With the feature `test-util`, locks of `memory://` go by tokio's clock in a runtime that has
//! paused it (`start_paused`, `tokio::time::pause`): leases, renewals, waits, `min_hold` and
//! deferred calls.
//!
#![cfg_attr(feature = "test-util", doc = "```")]
#![cfg_attr(not(feature = "test-util"), doc = "```ignore")]
//! # use std::time::Duration;
//! # use lockmacro_runtime::{Lock, LockError, LockManager};
//! #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn main() -> Result<(), LockError> {
//!     let locks = LockManager::memory();
//!     let hour = Duration::from_secs(60 * 60);
//!     let guard = Lock::new("order:42").ttl(hour).manager(&locks).acquire().await?;
//!     tokio::time::advance(hour).await;
//!     assert!(!guard.is_held());
//!     Ok(())
//! }
//! ```
//!
//! - Background work of a manager, such as renewals, runs on the paused runtime itself, and not on
//!   a thread. So a manager belongs to one clock, that of its first background work. A manager that
//!   tests share begins each of them with `LockManager::reset`.
//! - Background work that is left when the runtime ends goes no further. A lock that was dropped in
//!   the last moment may so be left to its ttl.
//! - `tokio::time::sleep` goes from timer to timer. `tokio::time::advance` jumps, so that a renewed
//!   lock is lost by a jump longer than its lease.
//! - Blocking calls go by the paused clock in `spawn_blocking`; tokio moves the clock on by itself
//!   only when no blocking task runs. A thread without a runtime goes by the real clock. On the
//!   thread of the runtime, [`release_blocking`](LockGuard::release_blocking) fails with
//!   [`LockError::BlockingInAsync`].
//! - The leases of a server's locks end by the server's clock, which nobody can pause. A paused
//!   clock is wrong for them.
//! - A clock that was paused and runs again is still virtual, as it is behind the real one or
//!   ahead. Where no clock was ever paused, nothing changes.
//!
//! # Telemetry
//!
//! Locks report to `tracing`. There is a span `lock` around every body, at DEBUG, and these events:
//!
//! | event | level | when |
//! |---|---|---|
//! | `lock acquired` | DEBUG | a lock was granted |
//! | `lock busy` | DEBUG | somebody else holds the lock, or still does after the `wait` |
//! | `lock unavailable` | WARN, DEBUG in an outage | the server cannot answer |
//! | `lock refused` | WARN | any other error of a request |
//! | `lock renewed` | TRACE | a lease was extended |
//! | `lock not renewed yet` | DEBUG | a renewal failed, and is tried again |
//! | `lock not renewed` | WARN | a renewal failed, and another one would fail as well |
//! | `lock not renewed for half of its time` | WARN | half of the lease has passed since then |
//! | `lock lost` | WARN | a lease has ended, or the key is not ours |
//! | `lock was taken away before its release` | WARN | the release has found the loss |
//! | `lock is still being released` | WARN, DEBUG in an outage | it is tried again |
//! | `dropped lock not released: …` | WARN, DEBUG in an outage | the key stays for its ttl |
//! | the same | ERROR | the background thread could not be started |
//! | `too many dropped locks: …` | WARN | locks dropped from now on end with their ttl |
//! | `dropped locks were not released: …` | INFO | the number of these locks, at the end |
//! | `held locks are not confirmed at the new server: …` | ERROR | likewise, after a failover |
//! | `lock failed in a function that cannot return an error` | ERROR | `()` or `Option` |
//! | `this key is a constant, …` | WARN | once for each constant with placeholders |
//! | `a ttl is too short for the round trip to the server: …` | WARN | once for each server |
//! | `the user lacks rights without which waiters are served slowly` | WARN | once |
//! | `locks are disabled: …` | WARN | a manager of `LockManager::disabled` is made |
//! | `a node of a Redlock does not vote` | WARN | for more than a second or two |
//! | `a node of a Redlock votes again` | INFO | after the event above |
//!
//! Deferred calls (feature `defer`) report:
//!
//! | event | level | when |
//! |---|---|---|
//! | `deferred call ended` | DEBUG | a call was run, or goes back to the queue |
//! | `deferred call could not be tried` | INFO | its lock was not acquired; it is tried again |
//! | `deferred call failed` | WARN | it is tried again |
//! | `deferred call is a dead letter` | ERROR | it is not tried again |
//! | `a deferred call was not tried: …` | WARN | no manager is installed where the worker runs |
//! | `a deferred call went to another worker` | WARN | its lease ended before it was renewed |
//! | `a deferred call ended after it had gone to another worker` | WARN | likewise |
//! | `the end of a deferred call could not be stored: …` | ERROR | it runs again |
//! | `deferred calls could not be taken` | WARN, DEBUG in an outage | the queue cannot answer |
//! | `entries that are no deferred calls were removed: …` | ERROR | another program wrote them |
//!
//! An outage is reported once for each server of a manager:
//!
//! - `lock server lost` (WARN), when no call was answered for a quarter of the manager's timeout;
//! - `lock server back` (INFO), when the server answers again;
//! - `lock server not in the slot map` (INFO), when the node has left its cluster instead.
//!
//! The fields are `server` (host and port), `since` or `after`, `failed_calls`, and, at the end of
//! the outage, `locks_lost`: the locks kept on this server that were lost meanwhile (of a Redlock,
//! at each of its nodes that fails). Failures during the outage are logged at DEBUG. Others of a
//! server are logged at WARN, at most one in 5 s. A server that was never reached counts as lost
//! once a call has failed as well; connecting to it returns an error instead. With a Redlock,
//! failures are logged at DEBUG only while a majority of its nodes is lost.
//!
//! With the feature `metrics`, locks are counted:
//!
//! | metric | kind | labels besides `name` and `template` |
//! |---|---|---|
//! | `lockmacro_acquisitions_total` | counter | `outcome`: acquired, busy, timed_out or error |
//! | `lockmacro_wait_seconds` | histogram, from the request to the answer | |
//! | `lockmacro_hold_seconds` | histogram, from the request to the release | |
//! | `lockmacro_waiting` | gauge, callers that wait for an answer | |
//! | `lockmacro_held` | gauge | |
//! | `lockmacro_renewals_total` | counter | `outcome`: `renewed`, `taken`, `error` |
//! | `lockmacro_lost_total` | counter | `cause`: `expired`, `not_renewed`, `taken` |
//! | `lockmacro_released_late_total` | counter, releases of a lost lock | `cause`: `taken` |
//! | `lockmacro_unreported_total` | counter, errors a return type cannot carry | only `name` |
//!
//! `name` is the function, and `template` the template of its key. No metric has the key itself as
//! a label, because the number of keys is unbounded.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(not(unix))]
compile_error!("lockmacro-runtime runs on Linux and other Unix systems: it needs their clocks");

#[cfg(feature = "defer")]
pub mod defer;
mod engine;
mod expansion;
mod guard;
#[cfg(feature = "look")]
pub mod inspect;
#[cfg(feature = "defer")]
mod jobs;
mod lock;
mod manager;
mod many;
mod outcome;
mod protocol;
mod run;
mod store;
mod value;

/// Replaces the system in a deterministic simulation of whole programs. Not part of the public API:
/// it may change in any release.
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation {
    pub use crate::value::world::{Entered, Opening, Stream, Task, World, enter};
}

pub use guard::LockGuard;
pub use lock::Lock;
#[cfg(feature = "macros")]
pub use lockmacro::distributed_lock;
pub use manager::builder::LockManagerBuilder;
pub use manager::lock_manager::LockManager;
pub use manager::redis_server::RedisServer;
pub use outcome::{LockFailure, LockOutcome, SkipOutcome};
pub use run::map_err::MapErr;
pub use run::recovering::Recovering;
pub use value::error::{LockError, NodeReply};
pub use value::fence::{self, Fence};
pub use value::holder::Holder;
pub use value::key::LockKey;
pub use value::loss::{LossCause, Lost, OnLost};
pub use value::template::{KeyValue, LockTemplate};
pub use value::unavailability::Unavailability;

/// Items that expansions of the attribute need beyond the public API. The module is named after the
/// version of the macro: a macro and a runtime of different versions fail to compile, and the
/// compiler's message shows this name.
#[doc(hidden)]
pub mod __same_version_as_lockmacro_0_1_0 {
    pub use crate::expansion::constant_key;
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

    /// Gives a body the return type of its function, in a branch that never runs. A type error is
    /// then reported inside the body, and `Ok(Box::new(x))` is coerced to a box of a trait.
    pub fn outcome<R>() -> R {
        loop {
            std::thread::park();
        }
    }

    /// Checks the type of the function given as `map_err`, so that an error points at its path.
    pub fn map<R: AnyResult>(
        map: fn(crate::LockError) -> R::Error,
    ) -> fn(crate::LockError) -> R::Error {
        map
    }

    /// A `Result`, by whatever name.
    #[diagnostic::on_unimplemented(
        message = "`map_err` makes the error of a `Result`, and `{Self}` is none",
        label = "this is not a `Result`",
        note = "remove `map_err`, or return a `Result`"
    )]
    pub trait AnyResult {
        /// The type of its `Err`.
        type Error;
    }

    impl<T, E> AnyResult for Result<T, E> {
        type Error = E;
    }

    /// Checks the type of the function given as `on_lost`, so that an error points at its path.
    pub fn recover<R>(recover: fn(crate::Lost, R) -> R) -> fn(crate::Lost, R) -> R {
        recover
    }
}
