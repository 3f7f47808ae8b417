//! Delivery of grants to waiters: the channels on which they arrive, and the subscriptions to them.

pub(crate) mod channels;
pub(crate) mod subscribe;
