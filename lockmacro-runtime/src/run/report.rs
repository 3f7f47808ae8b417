//! How the end of a locked body becomes the caller's value.

use crate::outcome::{LockOutcome, SkipOutcome};
use crate::value::error::{LockError, Unavailability};
use crate::value::loss::Lost;

/// How a body ended: `Ok` if it has finished, with the loss of its lock before that. An error if it
/// did not run, or was dropped.
pub(crate) type Ended = Result<Option<Lost>, LockError>;

/// Makes the caller's value of an error. The body has a value if it finished after the loss.
pub(crate) type MakeValue<M, R> = fn(Option<R>, LockError, M) -> R;

/// How the end of a body becomes the caller's value. A named type, because with a closure the
/// compiler would report an error in the return type twice, and nest types one level deeper, of
/// which it limits the number.
pub struct Conclusion<H, M, R> {
    /// Recovers from a loss, if it is a function.
    recover: H,
    /// Converts errors, if it is a function.
    map: M,
    failed: MakeValue<M, R>,
}

/// A conclusion that depends on the return type alone.
pub type Report<R> = Conclusion<(), (), R>;

impl<H, M, R> Conclusion<H, M, R> {
    pub(crate) fn new(recover: H, map: M, failed: MakeValue<M, R>) -> Self {
        Self { recover, map, failed }
    }

    /// Returns the caller's value, of the end of the body and of its value if it has one. Not
    /// inlined, because functions of one return type share it.
    #[inline(never)]
    pub(crate) fn conclude(self, ended: Ended, value: Option<R>) -> R
    where
        H: Recover<R>,
    {
        let (value, error) = match (ended, value) {
            (Ok(None), Some(value)) => return value,
            (Ok(Some(lost)), Some(value)) => match self.recover.recover(&lost, value) {
                Ok(recovered) => return recovered,
                Err(value) => (Some(value), lost.into()),
            },
            (Err(error), _) => (None, error),
            // Cannot happen: a body that has finished has a value.
            (Ok(_), None) => (None, LockError::unavailable(Unavailability::Local, "no value")),
        };
        (self.failed)(value, error, self.map)
    }
}

/// A function that recovers from a loss, or `()` for none.
pub trait Recover<R> {
    /// Returns the value of the function, or else that of the body, which finished after the loss.
    fn recover(self, lost: &Lost, value: R) -> Result<R, R>;
}

impl<R> Recover<R> for () {
    fn recover(self, _: &Lost, value: R) -> Result<R, R> {
        Err(value)
    }
}

impl<R, H: FnOnce(Lost, R) -> R> Recover<R> for H {
    fn recover(self, lost: &Lost, value: R) -> Result<R, R> {
        Ok(self(lost.clone(), value))
    }
}

/// For return types that carry errors.
pub(crate) fn reported<R: LockOutcome>(value: Option<R>, error: LockError, (): ()) -> R {
    match value {
        Some(value) => value.after_loss(error),
        None => R::from_lock_error(error),
    }
}

/// For callers that skip the body when somebody else holds the lock.
pub(crate) fn skipped<R: SkipOutcome>(value: Option<R>, error: LockError, (): ()) -> R {
    match value {
        Some(value) => value.after_loss(error),
        None if error.is_busy() => R::skipped(error),
        None => R::from_lock_error(error),
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

/// For results whose errors `map` makes of those of the lock.
pub(crate) fn mapped<R: AnyResult, M>(value: Option<R>, error: LockError, map: M) -> R
where
    M: FnOnce(LockError) -> R::Error,
{
    match value.map(R::result) {
        Some(Err(own)) => Err(own).into(),
        _ => Err(map(error)).into(),
    }
}

/// The same for callers that skip the body when somebody else holds the lock.
pub(crate) fn mapped_or_skipped<R: AnyResult, M>(value: Option<R>, error: LockError, map: M) -> R
where
    M: FnOnce(LockError) -> R::Error,
    Result<R::Value, LockError>: SkipOutcome,
{
    if error.is_busy() {
        return Result::<R::Value, LockError>::skipped(error).map_err(map).into();
    }
    mapped(value, error, map)
}
