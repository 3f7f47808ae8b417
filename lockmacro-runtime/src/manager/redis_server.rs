//! A server that a program describes by the `redis` crate, and not by a URL.

use std::fmt;

use redis::{Client, ConnectionInfo};

/// A server as the `redis` crate knows it: see
/// [`from_redis`](crate::LockManagerBuilder::from_redis). Made of a [`redis::Client`] or a
/// [`redis::ConnectionInfo`].
#[derive(Clone)]
pub struct RedisServer(pub(crate) ConnectionInfo);

impl From<ConnectionInfo> for RedisServer {
    fn from(info: ConnectionInfo) -> Self {
        Self(info)
    }
}

impl From<Client> for RedisServer {
    fn from(client: Client) -> Self {
        Self::from(&client)
    }
}

impl From<&Client> for RedisServer {
    fn from(client: &Client) -> Self {
        Self(client.get_connection_info().clone())
    }
}

impl fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the settings, which have the password.
        f.debug_tuple("RedisServer").field(&self.0.addr().to_string()).finish()
    }
}
