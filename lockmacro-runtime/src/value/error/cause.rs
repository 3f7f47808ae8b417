//! The error of a library that is behind a failure of a server.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The error of a connection: of the operating system, or of the library that speaks to the server.
/// Never a server's reply, which may repeat a token. A store that others write gives what it likes.
///
/// In an `Arc`, because a `LockError` can be cloned; and behind a thin pointer, to keep it small.
#[derive(Clone)]
pub struct Cause(Arc<Box<dyn Error + Send + Sync>>);

impl Cause {
    pub(crate) fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self::of(Box::new(error))
    }

    /// The error of a store that others write.
    pub(crate) fn of(error: Box<dyn Error + Send + Sync>) -> Self {
        Self(Arc::new(error))
    }
}

/// It is no error itself, so that the source of a `LockError` is the one inside.
impl Deref for Cause {
    type Target = dyn Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &**self.0
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Two are equal when their texts are.
impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}

impl Eq for Cause {}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::value::error::{LockError, UnavailableReason};

    fn refused() -> LockError {
        LockError::Unavailable {
            reason: UnavailableReason::Refused,
            detail: "refused".to_owned(),
            server: None,
            retry_after: None,
            nodes: Box::default(),
            cause: Some(Cause::new(io::Error::from(io::ErrorKind::ConnectionRefused))),
        }
    }

    #[test]
    fn the_source_of_an_error_is_the_error_of_the_library() {
        let error = refused();
        let source = error.source().expect("a source").downcast_ref::<io::Error>();
        assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::ConnectionRefused));
        assert!(LockError::unavailable("").source().is_none());
    }

    #[test]
    fn errors_are_equal_that_say_the_same() {
        assert_eq!(refused(), refused());
        assert_eq!(refused().clone(), refused());
    }
}
