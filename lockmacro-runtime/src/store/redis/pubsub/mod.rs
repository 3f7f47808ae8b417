//! How grants arrive: channels, and the subscriptions to them.

pub(crate) mod channels;
pub(crate) mod local_releases;
pub(crate) mod releases;
pub(crate) mod subscribe;
