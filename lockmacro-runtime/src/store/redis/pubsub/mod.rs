//! Delivery of grants: channels and subscriptions, and the answers to releases of the same process.

pub(crate) mod channels;
pub(crate) mod subscribe;
