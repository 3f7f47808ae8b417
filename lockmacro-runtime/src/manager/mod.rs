//! The manager of locks, and its builder.

pub(crate) mod builder;
mod connect;
mod defaults;
pub(crate) mod lock_manager;
#[cfg(feature = "redis")]
mod redis;
mod url_settings;

pub use builder::LockManagerBuilder;
#[cfg(feature = "redis-1")]
pub use redis::server::RedisServer;
