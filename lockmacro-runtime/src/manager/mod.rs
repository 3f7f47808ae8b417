//! The manager of locks, and its builder.

mod builder;
mod connect;
mod defaults;
pub(crate) mod lock_manager;
mod redis_server;

pub use builder::LockManagerBuilder;
pub use redis_server::RedisServer;
