//! Opening a stream to a server. Nothing else does.

use std::io;
use std::pin::Pin;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, RedisResult};
use tokio::net::TcpStream;

use crate::sys::platform::redis_streams::unix_socket;
use crate::sys::task::spawn;
use crate::sys::world::{self, Stream};

/// Opens a connection, and logs in.
pub(crate) async fn connection(
    client: &Client,
    config: &AsyncConnectionConfig,
) -> RedisResult<MultiplexedConnection> {
    if let Some(world) = world::current() {
        let info = client.get_connection_info();
        let stream = world.open(&info.addr().to_string()).await?;
        let login = info.redis_settings();
        let (connection, driver) =
            MultiplexedConnection::new_with_config(login, stream, config.clone()).await?;
        spawn(driver);
        return Ok(connection);
    }
    client.get_multiplexed_async_connection_with_config(config).await
}

/// Opens a stream without a login; `None` to a server that wants TLS.
pub(crate) async fn unused(address: &ConnectionAddr) -> io::Result<Option<Pin<Box<dyn Stream>>>> {
    if let Some(world) = world::current() {
        return world.open(&address.to_string()).await.map(Some);
    }
    Ok(Some(match address {
        ConnectionAddr::Tcp(host, port) => {
            Box::pin(TcpStream::connect((host.as_str(), *port)).await?)
        }
        ConnectionAddr::Unix(path) => unix_socket(path).await?,
        _ => return Ok(None),
    }))
}
