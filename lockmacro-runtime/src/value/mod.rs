//! Values that know no server: keys, tokens, errors, times.

pub(crate) mod applied;
pub(crate) mod backoff;
pub(crate) mod busy;
pub(crate) mod busy_text;
pub(crate) mod companion;
pub(crate) mod defaults;
pub(crate) mod duration;
pub(crate) mod error;
pub(crate) mod error_kind;
pub(crate) mod escaped;
pub mod fence;
pub(crate) mod holder;
#[cfg(feature = "look")]
pub(crate) mod inspection;
pub(crate) mod key;
pub(crate) mod key_set;
pub(crate) mod labels;
pub(crate) mod limits;
pub(crate) mod loss;
pub(crate) mod sync;
pub(crate) mod template;
pub(crate) mod time;
pub(crate) mod token;
pub(crate) mod unavailability;
pub(crate) mod url;
