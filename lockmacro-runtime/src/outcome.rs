//! How a failure of the lock reaches the caller: by the return type of the body.

use crate::error::LockError;
use crate::key::{Listed, LockKey};
use crate::telemetry;

/// A return type that can say that the lock could not be had, or was lost.
///
/// It is there for every `Result<T, E>` with `E: From<LockError>`. Implement it for a type of your
/// own to lock functions that return it:
///
/// ```
/// use lockmacro_runtime::{LockError, LockOutcome};
///
/// enum Response { Ok(String), Locked, Failed }
///
/// impl LockOutcome for Response {
///     fn from_lock_error(error: LockError) -> Self {
///         if error.is_busy() { Response::Locked } else { Response::Failed }
///     }
///
///     fn after_loss(self, _: LockError) -> Self {
///         Response::Failed
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "a locked function must be able to return an error, and `{Self}` cannot",
    label = "this cannot say that the lock was busy or lost",
    note = "return `Result<T, LockError>`, or a `Result<T, E>` whose `E` is `From<LockError>`",
    note = "to do nothing when the lock is busy, write `on_busy = skip` and return `()`, `Option<T>` or a `Result` of these",
    note = "a type of your own can implement `lockmacro_runtime::LockOutcome`"
)]
pub trait LockOutcome: Sized {
    /// What the caller gets in place of the body's value.
    fn from_lock_error(error: LockError) -> Self;

    /// What the caller gets when the body finished with this value after its lock was lost. Keep a
    /// body's own failure.
    fn after_loss(self, lost: LockError) -> Self;
}

impl<T, E: LockFailure> LockOutcome for Result<T, E> {
    fn from_lock_error(error: LockError) -> Self {
        Err(E::of(error))
    }

    fn after_loss(self, lost: LockError) -> Self {
        self.and(Err(E::of(lost)))
    }
}

/// An error type that the errors of a lock can become: every one that is `From<LockError>`.
#[diagnostic::on_unimplemented(
    message = "the errors of the lock cannot become `{Self}`: write `impl From<LockError> for {Self}`, or with thiserror a variant `Lock(#[from] LockError)`",
    label = "`{Self}` is not `From<LockError>`",
    note = "for an error type of another crate, write `map_err = path` with the path of a `fn(LockError) -> {Self}`"
)]
pub trait LockFailure: Sized {
    /// The error of the lock as one of this type.
    fn of(error: LockError) -> Self;
}

#[diagnostic::do_not_recommend]
impl<E: From<LockError>> LockFailure for E {
    fn of(error: LockError) -> Self {
        error.into()
    }
}

/// A return type that can say that the body was left out because the lock was busy, as
/// `on_busy = skip` asks.
///
/// It is there for `()`, `Option<T>`, `Result<(), E>` and `Result<Option<T>, E>`. `()` and
/// `Option<T>` cannot carry an error: there it is logged at ERROR.
#[diagnostic::on_unimplemented(
    message = "a function that is skipped when busy must be able to return nothing, and `{Self}` cannot",
    label = "this cannot say that the call was skipped",
    note = "return `()`, `Option<T>`, `Result<(), E>` or `Result<Option<T>, E>`, with `E: From<LockError>`",
    note = "a type of your own can implement `lockmacro_runtime::SkipOutcome`"
)]
pub trait SkipOutcome: Sized {
    /// Whether an error reaches the caller. Where it does not, it is logged at ERROR.
    const CARRIES_ERRORS: bool = true;

    /// What the caller gets when somebody else holds the lock.
    fn skipped(busy: LockError) -> Self;

    /// What the caller gets for every other error.
    fn from_lock_error(error: LockError) -> Self;

    /// What the caller gets when the lock that `name` asked for could not be had: skipped if it was
    /// busy, else the error, which is logged where it cannot be carried.
    fn refused(name: &str, error: LockError) -> Self {
        #[cfg(feature = "defer")]
        if let LockError::Deferred { .. } = error {
            return Self::skipped(error);
        }
        if error.is_busy() {
            return Self::skipped(error);
        }
        if !Self::CARRIES_ERRORS {
            unreported(name, &[], &error);
        }
        Self::from_lock_error(error)
    }

    /// What the caller gets when the body finished with this value after its lock was lost. Keep a
    /// body's own failure.
    fn after_loss(self, lost: LockError) -> Self;
}

/// Logs an error that a return type cannot carry. A busy lock is none.
///
/// # Panics
/// When there is no manager, no runtime, or a blocking lock on the one thread of a runtime: the
/// program is wrong then, and its caller would go on as if somebody else had done the work.
pub(crate) fn unreported(name: &str, keys: &[LockKey], error: &LockError) {
    if error.is_busy() {
        return;
    }
    let keys = keys.split_first().map(|(first, more)| Listed { first, more });
    telemetry::unreported(name, keys, error);
    if let LockError::NotInstalled | LockError::NoRuntime | LockError::BlockingInAsync = error {
        panic!("`{name}` cannot return this error, so its body never runs: {error}");
    }
}

impl SkipOutcome for () {
    const CARRIES_ERRORS: bool = false;

    fn skipped(_: LockError) -> Self {}

    fn from_lock_error(_: LockError) -> Self {}

    fn after_loss(self, _: LockError) -> Self {}
}

impl<T> SkipOutcome for Option<T> {
    const CARRIES_ERRORS: bool = false;

    fn skipped(_: LockError) -> Self {
        None
    }

    fn from_lock_error(_: LockError) -> Self {
        None
    }

    fn after_loss(self, _: LockError) -> Self {
        None
    }
}

impl<E: LockFailure> SkipOutcome for Result<(), E> {
    fn skipped(_: LockError) -> Self {
        Ok(())
    }

    fn from_lock_error(error: LockError) -> Self {
        Err(E::of(error))
    }

    fn after_loss(self, lost: LockError) -> Self {
        self.and(Err(E::of(lost)))
    }
}

impl<T, E: LockFailure> SkipOutcome for Result<Option<T>, E> {
    fn skipped(_: LockError) -> Self {
        Ok(None)
    }

    fn from_lock_error(error: LockError) -> Self {
        Err(E::of(error))
    }

    fn after_loss(self, lost: LockError) -> Self {
        self.and(Err(E::of(lost)))
    }
}
