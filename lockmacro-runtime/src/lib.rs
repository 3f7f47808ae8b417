//! The engine of lockmacro: distributed locks whose bodies never run without the lock, and never
//! outlive it unnoticed.
//!
//! Most programs need two things from here: a [`LockManager`], connected and installed when the
//! program starts, and the attribute [`distributed_lock`] on the functions that must not run twice
//! at once. [`Lock`] is what the attribute expands to, and can be used by hand. [`LockError`] tells
//! what went wrong.
//!
//! ```
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
//! Redis lock can promise exclusion.
//!
//! # Features
//!
//! - `macros` (on by default): the attribute.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod backend;
mod census;
mod clock;
mod error;
pub mod fence;
mod guard;
mod held;
mod hold;
mod janitor;
mod key;
mod lease;
mod lock;
mod loss;
mod manager;
mod outcome;
mod recovering;
mod renewal;
mod run;
mod scope;
mod side;
mod telemetry;
mod token;

pub use error::{LockError, Unavailability};
pub use fence::Fence;
pub use guard::LockGuard;
pub use key::{LockKey, LockTemplate};
pub use lock::Lock;
#[cfg(feature = "macros")]
pub use lockmacro::distributed_lock;
pub use loss::{LossCause, Lost, OnLost};
pub use manager::{LockManager, LockManagerBuilder};
pub use outcome::{LockOutcome, SkipOutcome};
pub use recovering::Recovering;

/// What expansions need beyond the public API. Its name is the version of the macro that may use
/// it, so that a macro and a runtime of different versions do not compile together.
#[doc(hidden)]
pub mod __macro_v0_1_0 {
    /// Gives a body the return type of its function, in a branch that is never taken: so a type
    /// error is told where the body has it, and `Ok(Box::new(x))` becomes a box of a trait.
    pub fn outcome<R>() -> R {
        loop {
            std::thread::park();
        }
    }
}
