//! What a manager has for Redis servers and no other store.

mod builder;
#[cfg(feature = "redis-1")]
pub(crate) mod server;
pub(crate) mod settings;
