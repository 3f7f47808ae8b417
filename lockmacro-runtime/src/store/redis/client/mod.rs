//! A Redis client: connections, calls, retries and errors. It acquires and releases nothing.

pub(crate) mod blocking_pool;
pub(crate) mod budget;
pub(crate) mod call;
pub(crate) mod connect;
pub(crate) mod connection;
pub(crate) mod connector;
pub(crate) mod credentials;
pub(crate) mod database;
pub(crate) mod error;
pub(crate) mod failover;
pub(crate) mod health;
pub(crate) mod node;
pub(crate) mod pipeline;
pub(crate) mod rejection;
pub(crate) mod replicas;
pub(crate) mod retry;
pub(crate) mod round_trip;
pub(crate) mod script;
pub(crate) mod sentinel;
pub(crate) mod settings;
pub(crate) mod singleflight;
pub(crate) mod stream;
pub(crate) mod subscriptions;
pub(crate) mod tls;
pub(crate) mod url;
