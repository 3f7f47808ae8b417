//! The manager of locks, and its builder.

pub(crate) mod builder;
pub(crate) mod connect;
pub(crate) mod defaults;
pub(crate) mod disabled;
pub(crate) mod lock_manager;
pub(crate) mod redis_server;
#[cfg(feature = "test-util")]
pub(crate) mod reset;
pub(crate) mod scope;
