//! Values that know no server: keys, tokens, errors, times.

pub(crate) mod applied;
pub(crate) mod backoff;
pub(crate) mod companion;
pub(crate) mod defaults;
pub(crate) mod error;
pub(crate) mod escaped;
pub mod fence;
pub(crate) mod holder;
#[cfg(feature = "inspect")]
pub(crate) mod inspection;
pub(crate) mod key;
pub(crate) mod limits;
pub(crate) mod loss;
pub(crate) mod metrics;
pub(crate) mod mode;
pub(crate) mod parking;
pub(crate) mod platform;
pub(crate) mod random;
#[cfg(any(feature = "defer", feature = "reuse"))]
pub(crate) mod same_value;
#[cfg(any(feature = "defer", feature = "reuse"))]
pub(crate) mod sites;
pub(crate) mod sync;
pub(crate) mod task;
pub(crate) mod template;
pub(crate) mod time;
pub(crate) mod token;
pub(crate) mod url;
pub(crate) mod world;
