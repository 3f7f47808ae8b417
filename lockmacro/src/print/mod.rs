//! The expansion: one call of the public API of the runtime.

mod defer;
pub(crate) mod expand;
pub(crate) mod lock;
pub(crate) mod misplaced;
