//! The engine of lockmacro: distributed locks whose bodies never run without the lock, and never
//! outlive it unnoticed.
//!
//! Most programs need two things from here: a [`LockManager`], connected and installed when the
//! program starts, and the attribute `#[distributed_lock]` on the functions that must not run twice
//! at once. [`Lock`] is what the attribute expands to, and can be used by hand. [`LockError`] tells
//! what went wrong.
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
//! # What is promised
//!
//! Two bodies under the same key never overlap as long as the clients' clock *rates* differ by less
//! than 0.5 % and the server neither loses acknowledged writes nor jumps its clock. Outside that, no
//! Redis lock can promise exclusion; a resource that checks our [fence](mod@fence) is still safe,
//! because each grant's fence is larger than every earlier one, as long as the server has not both
//! lost the last one and set its clock back.
//!
//! # Waiting
//!
//! A busy lock is refused at once, or [waited for](Lock::wait) in line: in the order of asking,
//! without polling. A holder's release hands the lock over to who has waited longest, in the same
//! script, and the server pushes the grant to that one process.
//!
//! # Several keys
//!
//! `key = ["account:<from>", "account:<to>"]` and `key = keys(iterator)` lock several keys, all or
//! none of them; so does [`Lock::many`], where it is said how such a lock waits without a deadlock.
//!
//! # Several servers
//!
//! [`LockManager::redlock`] takes locks on a majority of independent servers, so that they are given
//! while one of them is down.
//!
//! # Features
//!
//! - `macros` (on by default): the attribute.
//! - `defer`: `on_busy = defer("30s")`, and the worker for it.
//! - `look`: which locks are held, by whom, and who waits.
//! - `cli`: the tool `lockmacro`, which shows that on a terminal.
//! - `serde`: a [`Fence`] can be stored and sent.
//! - `tls`: encrypted connections, `rediss://`.
//! - `metrics`: the numbers below, by the `metrics` crate.
//!
//! # Telemetry
//!
//! Locks tell what they do by `tracing`: a span `lock` around every body, and the events `lock
//! acquired` and `lock busy` (DEBUG), `lock unavailable` and `lock refused` (WARN: the server
//! cannot be asked, or refuses), `lock renewed` (TRACE), `lock not renewed for half of its time`,
//! `lock lost`, `lock was taken away before its release`, `lock is still being released` (WARN),
//! `this key is a constant` (WARN, once for a constant with placeholders), and `lock failed in a
//! function that cannot return an error` (ERROR).
//!
//! An outage is told once for each server of a manager: `lock server lost` (WARN), when no call had
//! an answer for a quarter of the manager's timeout, and `lock server back` (INFO), with `server`
//! (host and port), `since` or `after`, `failed_calls`, and `locks_lost` at its end. What fails
//! meanwhile is told at DEBUG; of other failures of a server one in 5 s is told at WARN. A server
//! that was never reached is lost when a call has failed as well: connecting returns an error
//! instead. The outage of a node that leaves the slot map of a cluster ends with `lock server not in
//! the slot map` (INFO) and the same fields. With a Redlock, failures are told at DEBUG only while
//! a majority of its nodes is lost.
//!
//! With the feature `metrics` locks are counted:
//!
//! | metric | kind | labels besides `name` and `template` |
//! |---|---|---|
//! | `lockmacro_acquisitions_total` | counter | `outcome`: `acquired`, `busy`, `timed_out`, `error` |
//! | `lockmacro_wait_seconds` | histogram, how long the answer took | |
//! | `lockmacro_hold_seconds` | histogram, from the request to the release | |
//! | `lockmacro_waiting` | gauge, callers that wait for an answer | |
//! | `lockmacro_held` | gauge | |
//! | `lockmacro_renewals_total` | counter | `outcome`: `renewed`, `taken`, `error` |
//! | `lockmacro_lost_total` | counter | `cause`: `expired`, `not_renewed`, `taken` |
//! | `lockmacro_released_late_total` | counter, releases that found somebody else's lock | `cause`: `taken` |
//! | `lockmacro_unreported_total` | counter, errors that a return type could not carry | only `name` |
//!
//! `name` is the function and `template` the template of its key: there are as many keys as orders,
//! so no metric has a key.

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

/// Expansions need these items beyond the public API. The module's name has the version of the
/// macro that may use it: a macro and a runtime of different versions do not compile together, and
/// the compiler's message shows this name.
#[doc(hidden)]
pub mod __same_version_as_lockmacro_0_1_0 {
    pub use crate::expansion::constant_key;
    // For `crate = path`: a path of something else is told once then, and where it was written.
    pub use crate::*;

    /// Fails to build: the attribute stands on an expression, which it cannot lock. Compilers
    /// without attributes there say so themselves, before this is built.
    pub fn misplaced<T>() {
        struct Misplaced<T>(T);
        impl<T> Misplaced<T> {
            const REFUSED: () =
                panic!("`#[distributed_lock]` goes on a function: move this into one");
        }
        Misplaced::<T>::REFUSED
    }

    /// Gives a body the return type of its function, in a branch that is never taken: so a type
    /// error is told where the body has it, and `Ok(Box::new(x))` becomes a box of a trait.
    pub fn outcome<R>() -> R {
        loop {
            std::thread::park();
        }
    }

    /// Makes a function of `map_err` one of the wanted type, so that another one is told beside it.
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
        /// Of its `Err`.
        type Error;
    }

    impl<T, E> AnyResult for Result<T, E> {
        type Error = E;
    }

    /// Makes a function of `on_lost` one of the wanted type, so that another one is told beside it.
    pub fn recover<R>(recover: fn(crate::Lost, R) -> R) -> fn(crate::Lost, R) -> R {
        recover
    }
}
