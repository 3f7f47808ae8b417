//! The outcome of a locked body, and how it becomes the caller's value.

use crate::engine::unreported::Errors;
use crate::outcome::{LockOutcome, SkipOutcome};
use crate::run::driver::Ended;
use crate::value::error::LockError;
use crate::value::loss::Lost;
use crate::value::unavailability::Unavailability;

/// The outcome of a body.
pub enum Outcome<R> {
    /// The body's value.
    Done(R),
    /// The body's value, and the loss of the lock before the body had finished.
    Late(R, Lost),
    /// Why the body did not run, or was dropped.
    Refused(LockError),
}

/// Makes the caller's value of the outcome of a body.
pub trait Conclude<R> {
    /// Returns the caller's value.
    fn conclude(self, outcome: Outcome<R>) -> R;
}

impl<R, X: FnOnce(Outcome<R>) -> R> Conclude<R> for X {
    fn conclude(self, outcome: Outcome<R>) -> R {
        self(outcome)
    }
}

/// A conclusion that depends on the return type alone.
pub type Report<R> = fn(Outcome<R>) -> R;

/// A [`Report`] after a function that recovers from a loss. A named type, because with an unnamed
/// one the compiler would report an error in the return type twice.
pub struct Recovered<H, R> {
    pub(crate) recover: H,
    pub(crate) report: Report<R>,
}

impl<R, H: FnOnce(Lost, R) -> R> Conclude<R> for Recovered<H, R> {
    fn conclude(self, outcome: Outcome<R>) -> R {
        (self.report)(outcome.recovered(self.recover))
    }
}

impl<R> Outcome<R> {
    pub(crate) fn new(ended: Ended, value: Option<R>) -> Self {
        match (ended, value) {
            (Ended::Done, Some(value)) => Outcome::Done(value),
            (Ended::Late(lost), Some(value)) => Outcome::Late(value, lost),
            (Ended::Late(lost), None) => Outcome::Refused(lost.into()),
            (Ended::Refused(error), _) => Outcome::Refused(error),
            // Cannot happen: a body that is done has a value.
            (Ended::Done, None) => Outcome::Refused(LockError::unavailable_at(
                None,
                Unavailability::Local,
                "the body has ended without a value",
            )),
        }
    }

    /// For return types that carry errors.
    pub(crate) fn reported(self) -> R
    where
        R: LockOutcome,
    {
        match self {
            Outcome::Done(value) => value,
            Outcome::Late(value, lost) => value.after_loss(lost.into()),
            Outcome::Refused(error) => R::from_lock_error(error),
        }
    }

    /// For callers that skip the body when somebody else holds the lock.
    pub(crate) fn skipped(self) -> R
    where
        R: SkipOutcome,
    {
        match self {
            Outcome::Done(value) => value,
            Outcome::Late(value, lost) => value.after_loss(lost.into()),
            Outcome::Refused(error) if error.is_busy() => R::skipped(error),
            Outcome::Refused(error) => R::from_lock_error(error),
        }
    }

    /// Calls `recover` with the loss and the value of a body that finished too late.
    pub(crate) fn recovered(self, recover: impl FnOnce(Lost, R) -> R) -> Self {
        match self {
            Outcome::Late(value, lost) => Outcome::Done(recover(lost, value)),
            outcome => outcome,
        }
    }
}

/// A `Result`, by whatever name.
#[diagnostic::on_unimplemented(
    message = "`map_err` makes the error of a `Result`, and `{Self}` is none: remove `map_err`, or \
               return a `Result`",
    label = "this is not a `Result`"
)]
pub trait AnyResult: From<Result<Self::Value, Self::Error>> {
    /// The type of its `Ok`.
    type Value;
    /// The type of its `Err`.
    type Error;

    /// Returns it by its own name.
    fn result(self) -> Result<Self::Value, Self::Error>;
}

#[diagnostic::do_not_recommend]
impl<T, E> AnyResult for Result<T, E> {
    type Value = T;
    type Error = E;

    fn result(self) -> Self {
        self
    }
}

impl<R: AnyResult> Outcome<R> {
    /// For results whose errors `map` makes of those of the lock.
    pub(crate) fn mapped<M: FnOnce(LockError) -> R::Error>(self, map: M) -> R {
        match self {
            Outcome::Done(value) => value,
            Outcome::Late(value, lost) => value.result().and_then(|_| Err(map(lost.into()))).into(),
            Outcome::Refused(error) => Err(map(error)).into(),
        }
    }

    /// The same for callers that skip the body when somebody else holds the lock.
    pub(crate) fn mapped_or_skipped<M>(self, map: M) -> R
    where
        M: FnOnce(LockError) -> R::Error,
        Result<R::Value, LockError>: SkipOutcome,
    {
        match self {
            Outcome::Refused(error) if error.is_busy() => {
                Result::<R::Value, LockError>::skipped(error).map_err(map).into()
            }
            outcome => outcome.mapped(map),
        }
    }
}

/// Which errors the driver reports where a busy lock is skipped.
pub(crate) fn errors_of<R: SkipOutcome>() -> Errors {
    if R::CARRIES_ERRORS { Errors::Carried } else { Errors::Reported }
}

/// The same where the caller recovers from a loss.
pub(crate) fn errors_recovered_of<R: SkipOutcome>() -> Errors {
    if R::CARRIES_ERRORS { Errors::Carried } else { Errors::ReportedUnlessLate }
}
