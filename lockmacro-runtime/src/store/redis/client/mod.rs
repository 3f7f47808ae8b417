//! A Redis client: connections, calls, retries and errors. It acquires and releases nothing.

pub(crate) mod channels;
mod connection;
pub(crate) mod connector;
pub(crate) mod error;
pub(crate) mod node;
mod rejection;
pub(crate) mod script;
mod sentinel;
pub(crate) mod settings;
mod stream;
pub(crate) mod url;
