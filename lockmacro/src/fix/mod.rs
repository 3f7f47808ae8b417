//! What was probably meant by a name, a value or a text that is none.

pub(crate) mod literal;
pub(crate) mod names;
pub(crate) mod slips;
