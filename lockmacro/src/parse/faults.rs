//! The mistakes in one attribute, which are reported together.

use syn::{Error, Result};

#[derive(Clone, Default)]
pub(crate) struct Faults(Option<Error>);

impl Faults {
    /// Keeps the error, or returns the value.
    pub(crate) fn keep<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => return Some(value),
            Err(error) => self.0 = Some(std::mem::take(self).with(error)),
        }
        None
    }

    /// All errors, and one more.
    pub(crate) fn with(self, last: Error) -> Error {
        match self.0 {
            Some(mut errors) => {
                errors.combine(last);
                errors
            }
            None => last,
        }
    }

    pub(crate) fn end(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}
