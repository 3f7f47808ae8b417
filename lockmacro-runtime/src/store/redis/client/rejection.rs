//! The reason why a server closes a connection before it has answered.

use std::io;
use std::time::Duration;

use redis::ConnectionAddr;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::timeout;

use crate::store::redis::client::stream;

/// Longest time to wait for such an error.
const GREETING_TIMEOUT: Duration = Duration::from_millis(200);

/// Reads what a server sends on a new connection without a request.
///
/// A server at its connection limit sends an error and closes the connection. A client that writes
/// a command meanwhile gets an error from the system, and may never read the server's error.
pub(crate) async fn greeting(address: &ConnectionAddr) -> Option<String> {
    let text = async {
        match stream::unused(address).await? {
            Some(stream) => read(stream).await,
            None => Ok(None),
        }
    };
    timeout(GREETING_TIMEOUT, text).await.ok()?.ok()?
}

async fn read(mut stream: impl AsyncRead + Unpin) -> io::Result<Option<String>> {
    let mut text = [0; 128];
    let length = stream.read(&mut text).await?;
    let text = String::from_utf8_lossy(&text[..length]);
    Ok(text.strip_prefix('-').map(|error| error.trim_end().to_owned()))
}
