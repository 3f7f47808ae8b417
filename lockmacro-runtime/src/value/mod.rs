//! Values that know no server: keys, tokens, fences, errors.

pub(crate) mod applied;
pub(crate) mod companion;
pub(crate) mod defaults;
pub(crate) mod error;
pub(crate) mod escaped;
pub mod fence;
pub(crate) mod holder;
pub(crate) mod key;
pub(crate) mod limits;
pub(crate) mod loss;
pub(crate) mod mode;
pub(crate) mod setting;
pub(crate) mod template;
pub(crate) mod token;
pub(crate) mod url;
