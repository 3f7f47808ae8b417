//! Why a store of one's own has no answer.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::io;

/// Why a store has no answer. It says what only the store knows: whether the call was applied, and
/// whether a retry is of use.
///
/// The text becomes the detail of a [`LockError`](crate::LockError) and appears in logs, so it must
/// contain no password. Where the caller gets [`LockError::Unavailable`], the error that was given
/// here is its [`source`](Error::source), for a caller who knows its type.
///
/// ```
/// use lockmacro_runtime::store::StoreError;
///
/// let unsent = StoreError::not_applied("no connection");
/// assert_eq!(unsent.to_string(), "no connection");
/// ```
///
/// [`LockError::Unavailable`]: crate::LockError::Unavailable
#[derive(Debug)]
pub struct StoreError {
    pub(crate) kind: StoreErrorKind,
    source: Box<dyn Error + Send + Sync>,
}

/// What the engine does about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreErrorKind {
    Unknown,
    NotApplied,
    Refused,
    Unusable,
    NotALock,
}

impl StoreError {
    /// The call may have been applied, or may still be: it was sent, and its answer was lost. The
    /// engine repeats it, and releases its token if it gives up.
    ///
    /// This is right whenever in doubt.
    pub fn unknown(why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(StoreErrorKind::Unknown, why)
    }

    /// The call was not applied and will not be, as where it was never sent. The engine repeats it.
    pub fn not_applied(why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(StoreErrorKind::NotApplied, why)
    }

    /// The store refuses the login, or lacks a right, and nothing was applied. The caller gets
    /// [`LockError::AccessDenied`](crate::LockError::AccessDenied) at once.
    pub fn refused(why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(StoreErrorKind::Refused, why)
    }

    /// The store cannot be used as it is, such as a database without the table, and nothing was
    /// applied. The caller gets [`LockError::InvalidSetting`](crate::LockError::InvalidSetting) for
    /// the setting `store`, at once.
    pub fn unusable(why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(StoreErrorKind::Unusable, why)
    }

    /// The key exists and is not a lock, and nothing was applied. The caller gets
    /// [`LockError::KeyNotALock`](crate::LockError::KeyNotALock) at once.
    pub fn not_a_lock() -> Self {
        Self::new(StoreErrorKind::NotALock, "the key exists and is not a lock")
    }

    fn new(kind: StoreErrorKind, why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, source: why.into() }
    }

    /// What the store gave as the reason.
    pub(crate) fn into_source(self) -> Box<dyn Error + Send + Sync> {
        self.source
    }

    /// The text with the texts of all sources.
    pub(crate) fn detail(&self) -> String {
        let mut detail = self.source.to_string();
        let mut next = self.source.source();
        while let Some(source) = next {
            // Some errors repeat the text of their source.
            let text = source.to_string();
            if !detail.contains(&text) {
                let _ = write!(detail, ": {text}");
            }
            next = source.source();
        }
        detail
    }
}

/// Whether a failed read or write was applied is unknown.
impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        Self::unknown(error)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
