//! A Redis client: connections, calls, retries and errors. It acquires and releases nothing.

pub(crate) mod budget;
mod connection;
pub(crate) mod connector;
pub(crate) mod error;
pub(crate) mod health;
pub(crate) mod node;
mod rejection;
pub(crate) mod script;
mod sentinel;
pub(crate) mod settings;
pub(crate) mod singleflight;
mod stream;
pub(crate) mod subscriptions;
pub(crate) mod url;
