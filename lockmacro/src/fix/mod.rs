//! What was probably meant by a value or a text that is none.

pub(crate) mod literal;
pub(crate) mod slips;
pub(crate) mod texts;
