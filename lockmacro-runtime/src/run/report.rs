//! The outcome of a locked body, and how it becomes the caller's value.

use crate::outcome::{LockOutcome, SkipOutcome};
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

/// How the outcome of a body becomes the caller's value. A named type, because with a closure the
/// compiler would report an error in the return type twice, and nest types one level deeper, of
/// which it limits the number.
pub struct Conclusion<H, M, R> {
    /// Recovers from a loss, if it is a function.
    pub(crate) recover: H,
    /// Converts errors, if it is a function.
    pub(crate) map: M,
    pub(crate) report: fn(Outcome<R>, M) -> R,
}

/// A conclusion that depends on the return type alone.
pub type Report<R> = Conclusion<(), (), R>;

impl<H: Recover<R>, M, R> Conclusion<H, M, R> {
    /// Returns the caller's value, of the outcome of the body and of its value if it has one. Not
    /// inlined, because functions of one return type share it.
    #[inline(never)]
    pub(crate) fn conclude(self, outcome: Outcome<()>, value: Option<R>) -> R {
        let outcome = match (outcome, value) {
            (Outcome::Done(()), Some(value)) => Outcome::Done(value),
            (Outcome::Late((), lost), Some(value)) => self.recover.recovered(value, lost),
            (Outcome::Late((), lost), None) => Outcome::Refused(lost.into()),
            (Outcome::Refused(error), _) => Outcome::Refused(error),
            // Cannot happen: a body that is done has a value.
            (Outcome::Done(()), None) => Outcome::Refused(LockError::unavailable(
                Unavailability::Local,
                "the body has ended without a value",
            )),
        };
        (self.report)(outcome, self.map)
    }
}

/// A function that recovers from a loss, or `()` for none.
pub trait Recover<R> {
    /// Whether it is a function.
    const IS_GIVEN: bool;

    /// Returns the outcome of a body that finished after the loss.
    fn recovered(self, value: R, lost: Lost) -> Outcome<R>;
}

impl<R> Recover<R> for () {
    const IS_GIVEN: bool = false;

    fn recovered(self, value: R, lost: Lost) -> Outcome<R> {
        Outcome::Late(value, lost)
    }
}

impl<R, H: FnOnce(Lost, R) -> R> Recover<R> for H {
    const IS_GIVEN: bool = true;

    fn recovered(self, value: R, lost: Lost) -> Outcome<R> {
        Outcome::Done(self(lost, value))
    }
}

impl<R> Outcome<R> {
    /// For return types that carry errors.
    pub(crate) fn reported(self, (): ()) -> R
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
    pub(crate) fn skipped(self, (): ()) -> R
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
