//! A server that is described by types of the `redis` crate instead of a URL.

use std::fmt;

use redis::{Client, ConnectionInfo};

/// A server for [`from_redis`](crate::LockManagerBuilder::from_redis), made of a [`redis::Client`]
/// or a [`redis::ConnectionInfo`].
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
        // Only the address: the settings contain the password.
        f.debug_tuple("RedisServer").field(&self.0.addr().to_string()).finish()
    }
}
