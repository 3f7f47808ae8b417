//! The lock's type decides how the end of a body becomes the caller's value: as an error in the
//! body's return type, as a call that was skipped, or as the value of a function of the caller.

use std::marker::PhantomData;

use crate::engine::acquire::outcome::Errors;
use crate::outcome::{LockOutcome, SkipOutcome};
use crate::value::error::LockError;
use crate::value::loss::Lost;

/// How a body ended: `Ok` if it has finished, with the loss of its lock before that. An error if it
/// did not run, or was dropped.
pub(crate) type BodyEnd = Result<Option<Lost>, LockError>;

/// What [`Lock::run`](crate::Lock::run) returns when the lock is busy or lost, as a part of the
/// lock's type.
///
/// `W` says what the caller gets for an error: [`Report`], [`Skip`] or [`MapErr`]. `H` recovers
/// from a loss after which the body has finished, if it is [`Recovering`].
#[derive(Debug, Clone, Default)]
pub struct RunPolicy<W = Report, H = ()> {
    pub(crate) errors: W,
    pub(crate) recover: H,
}

/// Each error is reported in the body's return type, which is a [`LockOutcome`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Report;

/// The body is skipped when the lock is busy, and its return type is a [`SkipOutcome`]: see
/// [`Lock::skip_when_busy`](crate::Lock::skip_when_busy).
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Skip;

/// Each error is converted by a function, or the call is skipped if `W` is [`Skip`]: see
/// [`Lock::map_err`](crate::Lock::map_err).
#[derive(Debug, Clone)]
pub struct MapErr<W, M> {
    map: M,
    otherwise: PhantomData<W>,
}

impl<W, M> MapErr<W, M> {
    pub(crate) fn new(map: M, _: W) -> Self {
        Self { map, otherwise: PhantomData }
    }
}

/// A function recovers from a loss: see [`Lock::recovering`](crate::Lock::recovering).
#[derive(Debug, Clone)]
pub struct Recovering<H>(pub(crate) H);

/// A value that a body can return under the [`RunPolicy`] `P`. It is implemented for these values
/// only:
///
/// | policy | value |
/// |---|---|
/// | [`Report`] | a [`LockOutcome`] |
/// | [`Skip`] | a [`SkipOutcome`] |
/// | [`MapErr`] | `Result<T, E>`, where the function makes an `E` |
/// | [`MapErr`] over [`Skip`] | `Result<(), E>` and `Result<Option<T>, E>` |
// It is a trait of the value, and not of the policy, so that the compiler reports a wrong type at
// the body.
pub trait Returnable<P>: Sized {
    /// Which errors are logged, because the value cannot carry them.
    #[doc(hidden)]
    const ERRORS: Errors;
    /// Whether a busy lock is waited for only if its own settings say so.
    #[doc(hidden)]
    const SKIPS: bool;
    /// Whether a body finishes when its lock is lost, as a function recovers from that.
    #[doc(hidden)]
    const RECOVERS: bool;

    /// How the end of a body becomes the caller's value.
    #[doc(hidden)]
    fn conclude(policy: P, ended: BodyEnd, value: Option<Self>) -> Self;
}

impl<R: Failing<W>, W, H: Recovers<R>> Returnable<RunPolicy<W, H>> for R {
    const ERRORS: Errors = match (R::CARRIES_ERRORS, H::RECOVERS) {
        (true, _) => Errors::Carried,
        (false, true) => Errors::ReportedUnlessLate,
        (false, false) => Errors::Reported,
    };
    const SKIPS: bool = R::SKIPS;
    const RECOVERS: bool = H::RECOVERS;

    // Not inlined, because functions of one return type share it.
    #[inline(never)]
    fn conclude(policy: RunPolicy<W, H>, ended: BodyEnd, value: Option<R>) -> R {
        let (value, error) = match (ended, value) {
            (Ok(None), Some(value)) => return value,
            (Ok(Some(lost)), Some(value)) => match policy.recover.recover(&lost, value) {
                Ok(recovered) => return recovered,
                Err(value) => (Some(value), lost.into()),
            },
            (Err(error), _) => (None, error),
            (Ok(_), None) => unreachable!("a body that has finished has a value"),
        };
        R::failed(policy.errors, value, error)
    }
}

/// Makes the caller's value after a loss, from the value of a body that has finished.
pub trait Recovers<R> {
    /// Whether there is a function for that.
    const RECOVERS: bool;

    fn recover(self, lost: &Lost, value: R) -> Result<R, R>;
}

impl<R> Recovers<R> for () {
    const RECOVERS: bool = false;

    fn recover(self, _: &Lost, value: R) -> Result<R, R> {
        Err(value)
    }
}

impl<R, H: FnOnce(Lost, R) -> R> Recovers<R> for Recovering<H> {
    const RECOVERS: bool = true;

    fn recover(self, lost: &Lost, value: R) -> Result<R, R> {
        Ok(self.0(lost.clone(), value))
    }
}

/// Makes the caller's value of an error. The body has a value if it finished after the loss.
pub trait Failing<W>: Sized {
    /// Whether the caller is given the errors.
    const CARRIES_ERRORS: bool;
    /// As [`Returnable::SKIPS`].
    const SKIPS: bool;

    fn failed(errors: W, value: Option<Self>, error: LockError) -> Self;
}

impl<R: LockOutcome> Failing<Report> for R {
    const CARRIES_ERRORS: bool = true;
    const SKIPS: bool = false;

    fn failed(_: Report, value: Option<R>, error: LockError) -> R {
        match value {
            Some(value) => value.after_loss(error),
            None => R::from_lock_error(error),
        }
    }
}

impl<R: SkipOutcome> Failing<Skip> for R {
    const CARRIES_ERRORS: bool = R::CARRIES_ERRORS;
    const SKIPS: bool = true;

    fn failed(_: Skip, value: Option<R>, error: LockError) -> R {
        match value {
            Some(value) => value.after_loss(error),
            None if error.is_busy() => R::skipped(error),
            None => R::from_lock_error(error),
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

impl<R: AnyResult, M: FnOnce(LockError) -> R::Error> Failing<MapErr<Report, M>> for R {
    const CARRIES_ERRORS: bool = true;
    const SKIPS: bool = false;

    fn failed(errors: MapErr<Report, M>, value: Option<R>, error: LockError) -> R {
        match value.map(R::result) {
            Some(Err(own)) => Err(own).into(),
            _ => Err((errors.map)(error)).into(),
        }
    }
}

impl<R: AnyResult, M: FnOnce(LockError) -> R::Error> Failing<MapErr<Skip, M>> for R
where
    Result<R::Value, LockError>: SkipOutcome,
{
    const CARRIES_ERRORS: bool = true;
    const SKIPS: bool = true;

    fn failed(errors: MapErr<Skip, M>, value: Option<R>, error: LockError) -> R {
        if error.is_busy() {
            return Result::<R::Value, LockError>::skipped(error).map_err(errors.map).into();
        }
        R::failed(MapErr::new(errors.map, Report), value, error)
    }
}
