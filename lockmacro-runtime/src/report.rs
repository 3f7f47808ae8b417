//! How the end of a locked body reaches the caller, by the body's type.

use crate::driver::{Ended, Errors};
use crate::error::{LockError, Unavailability};
use crate::loss::Lost;
use crate::outcome::{LockOutcome, SkipOutcome};

/// What came of a body.
pub enum Outcome<R> {
    /// The body's value.
    Done(R),
    /// The body's value, and the loss of the lock before the body had finished.
    Late(R, Lost),
    /// Why the body did not run, or was dropped.
    Refused(LockError),
}

impl<R> Outcome<R> {
    pub(crate) fn new(ended: Ended, value: Option<R>) -> Self {
        match (ended, value) {
            (Ended::Done, Some(value)) => Outcome::Done(value),
            (Ended::Late(lost), Some(value)) => Outcome::Late(value, lost),
            (Ended::Late(lost), None) => Outcome::Refused(lost.into()),
            (Ended::Refused(error), _) => Outcome::Refused(error),
            // No driver says so: a body that is done has a value.
            (Ended::Done, None) => Outcome::Refused(LockError::Unavailable {
                reason: Unavailability::Local,
                detail: "the body has ended without a value".to_owned(),
            }),
        }
    }
}

/// Makes the caller's value of what came of the body.
pub trait Report<R> {
    /// The caller's value.
    fn report(self, outcome: Outcome<R>) -> R;
}

/// For return types that carry errors.
pub struct Reported;

impl<R: LockOutcome> Report<R> for Reported {
    fn report(self, outcome: Outcome<R>) -> R {
        match outcome {
            Outcome::Done(value) => value,
            Outcome::Late(value, lost) => value.after_loss(lost.into()),
            Outcome::Refused(error) => R::from_lock_error(error),
        }
    }
}

/// For callers that are told nothing of a lock that somebody else holds.
pub struct Skipped;

impl Skipped {
    /// Which errors the driver reports for an `R`.
    pub(crate) fn errors<R: SkipOutcome>() -> Errors {
        if R::CARRIES_ERRORS { Errors::Carried } else { Errors::Reported }
    }

    /// The same where the caller recovers from a loss.
    pub(crate) fn errors_unless_late<R: SkipOutcome>() -> Errors {
        if R::CARRIES_ERRORS { Errors::Carried } else { Errors::ReportedUnlessLate }
    }
}

impl<R: SkipOutcome> Report<R> for Skipped {
    fn report(self, outcome: Outcome<R>) -> R {
        match outcome {
            Outcome::Done(value) => value,
            Outcome::Late(value, lost) => value.after_loss(lost.into()),
            Outcome::Refused(error) if error.is_busy() => R::skipped(error),
            Outcome::Refused(error) => R::from_lock_error(error),
        }
    }
}

/// Has `recover` called with the loss and the value of a body that finished too late.
pub struct Recovered<H, P> {
    pub(crate) recover: H,
    pub(crate) report: P,
}

impl<R, H: FnOnce(Lost, R) -> R, P: Report<R>> Report<R> for Recovered<H, P> {
    fn report(self, outcome: Outcome<R>) -> R {
        self.report.report(match outcome {
            Outcome::Late(value, lost) => Outcome::Done((self.recover)(lost, value)),
            outcome => outcome,
        })
    }
}

/// For results whose errors a function makes of those of the lock.
pub struct Mapped<M>(pub(crate) M);

impl<T, E, M: FnOnce(LockError) -> E> Report<Result<T, E>> for Mapped<M> {
    fn report(self, outcome: Outcome<Result<T, E>>) -> Result<T, E> {
        match outcome {
            Outcome::Done(value) => value,
            Outcome::Late(value, lost) => value.and_then(|_| Err((self.0)(lost.into()))),
            Outcome::Refused(error) => Err((self.0)(error)),
        }
    }
}

/// The same for callers that are told nothing of a lock that somebody else holds.
pub struct MappedOrSkipped<M>(pub(crate) M);

impl<T, E, M: FnOnce(LockError) -> E> Report<Result<T, E>> for MappedOrSkipped<M>
where
    Result<T, LockError>: SkipOutcome,
{
    fn report(self, outcome: Outcome<Result<T, E>>) -> Result<T, E> {
        match outcome {
            Outcome::Refused(error) if error.is_busy() => {
                Result::<T, LockError>::skipped(error).map_err(self.0)
            }
            outcome => Mapped(self.0).report(outcome),
        }
    }
}
