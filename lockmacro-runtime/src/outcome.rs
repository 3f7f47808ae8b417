//! Return types of a locked body, and how they carry a failure of the lock to the caller.

use crate::engine::acquire::outcome::unreported;
use crate::value::error::LockError;

/// A return type that can express that the lock was not acquired, or was lost.
///
/// It is implemented for every `Result<T, E>` with `E: From<LockError>`. Implement it for a type of
/// your own to lock functions that return that type:
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
    message = "`{Self}` cannot carry the errors of the lock: return a `Result<T, E>` with \
               `impl From<LockError> for E`, or with the argument `map_err = path`",
    label = "this cannot say that the lock was busy or lost",
    note = "with thiserror, `From` is a variant `Lock(#[from] LockError)`, and `map_err` takes a \
            `fn(LockError) -> E`",
    note = "to do nothing when the lock is busy, write `on_busy = skip` and return `()`, \
            `Option<T>` or a `Result` of these"
)]
pub trait LockOutcome: Sized {
    /// Makes the value that the caller gets in place of the body's value.
    fn from_lock_error(error: LockError) -> Self;

    /// Makes the value that the caller gets when the body finished with `self` after its lock was
    /// lost. Keep a failure of the body itself.
    fn after_loss(self, lost: LockError) -> Self;

    /// The value in a branch of an expansion that never runs.
    #[doc(hidden)]
    fn outcome() -> Self {
        outcome()
    }
}

#[diagnostic::do_not_recommend]
impl<T, E: From<LockError>> LockOutcome for Result<T, E> {
    fn from_lock_error(error: LockError) -> Self {
        Err(E::from(error))
    }

    fn after_loss(self, lost: LockError) -> Self {
        self.and(Err(E::from(lost)))
    }
}

/// A return type that can express that the body was skipped because the lock was busy, for
/// `on_busy = skip`.
///
/// It is implemented for `()`, `Option<T>`, `Result<(), E>` and `Result<Option<T>, E>`. `()` and
/// `Option<T>` cannot carry an error: the error is logged at ERROR instead.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot say that the call was skipped: return `()`, `Option<T>`, or a \
               `Result<(), E>` or `Result<Option<T>, E>` with `impl From<LockError> for E`",
    label = "this cannot say that the call was skipped",
    note = "with thiserror, `From` is a variant `Lock(#[from] LockError)`, and `map_err` takes a \
            `fn(LockError) -> E`",
    note = "a type of your own can implement `lockmacro_runtime::SkipOutcome`"
)]
pub trait SkipOutcome: Sized {
    /// Whether an error reaches the caller. Where it does not, it is logged at ERROR.
    const CARRIES_ERRORS: bool = true;

    /// Makes the value that the caller gets when somebody else holds the lock.
    fn skipped(busy: LockError) -> Self;

    /// Makes the value that the caller gets for every other error.
    fn from_lock_error(error: LockError) -> Self;

    /// The value of a call of the function `name` that did not get its lock, for expansions. An
    /// error that `Self` cannot carry is logged.
    #[doc(hidden)]
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

    /// Makes the value that the caller gets when the body finished with `self` after its lock was
    /// lost. Keep a failure of the body itself.
    fn after_loss(self, lost: LockError) -> Self;

    /// The value in a branch of an expansion that never runs.
    #[doc(hidden)]
    fn outcome() -> Self {
        outcome()
    }
}

#[diagnostic::do_not_recommend]
impl SkipOutcome for () {
    const CARRIES_ERRORS: bool = false;

    fn skipped(_: LockError) -> Self {}

    fn from_lock_error(_: LockError) -> Self {}

    fn after_loss(self, _: LockError) -> Self {}
}

#[diagnostic::do_not_recommend]
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

#[diagnostic::do_not_recommend]
impl<E: From<LockError>> SkipOutcome for Result<(), E> {
    fn skipped(_: LockError) -> Self {
        Ok(())
    }

    fn from_lock_error(error: LockError) -> Self {
        Err(E::from(error))
    }

    fn after_loss(self, lost: LockError) -> Self {
        self.and(Err(E::from(lost)))
    }
}

#[diagnostic::do_not_recommend]
impl<T, E: From<LockError>> SkipOutcome for Result<Option<T>, E> {
    fn skipped(_: LockError) -> Self {
        Ok(None)
    }

    fn from_lock_error(error: LockError) -> Self {
        Err(E::from(error))
    }

    fn after_loss(self, lost: LockError) -> Self {
        self.and(Err(E::from(lost)))
    }
}

/// Gives a body the return type of its function, in a branch that never runs. A type error is
/// then reported inside the body, and `Ok(Box::new(x))` is coerced to a box of a trait.
pub fn outcome<R>() -> R {
    loop {
        std::hint::spin_loop();
    }
}
