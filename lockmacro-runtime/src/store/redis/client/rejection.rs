//! The reason why what listens at an address answers no login: it has too many clients, or it is no
//! Redis server.

use std::time::Duration;

use redis::ConnectionAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::store::redis::client::error::{CallError, Transient, full};
use crate::store::redis::client::stream;
use crate::value::error::Unavailability;
use crate::value::escaped::Escaped;

/// Longest time to wait for such a text.
const GREETING_TIMEOUT: Duration = Duration::from_millis(200);
/// Most characters of it that an error shows.
const SHOWN: usize = 40;
/// The first bytes of an answer of a server that wants TLS, to anything else: an alert.
const TLS_ALERT: u8 = 21;
const NO_REDIS: &str = "it does not speak the Redis protocol";

/// A more telling error for a connection on which no login was answered.
pub(crate) async fn explained(address: &ConnectionAddr, mut error: Transient) -> CallError {
    let sent = match error.reason {
        // A server at its limit of clients says so unasked. A client that writes meanwhile may
        // never read it.
        Unavailability::Disconnected => "",
        Unavailability::Protocol => "PING\r\n",
        _ => return CallError::Transient(error),
    };
    let Some(said) = said(address, sent).await else { return CallError::Transient(error) };
    let text = String::from_utf8_lossy(&said);
    match said.as_slice() {
        // A reply of a Redis server.
        [b'+', ..] => {}
        [b'-', reply @ ..] => {
            if let Some(full) = full(String::from_utf8_lossy(reply).trim_end()) {
                return full;
            }
        }
        [] => {
            "it closes the connection without an answer: it may want TLS, which is `rediss://`, or \
             not speak the Redis protocol"
                .clone_into(&mut error.detail);
        }
        [TLS_ALERT, ..] => {
            error.detail = format!("{NO_REDIS}: it wants TLS, so write `rediss://`");
        }
        _ => {
            let line: String =
                text.lines().next().unwrap_or_default().chars().take(SHOWN).collect();
            error.reason = Unavailability::Protocol;
            error.detail = format!("{NO_REDIS}: it answered `{}`", Escaped(&line));
        }
    }
    CallError::Transient(error)
}

/// The text that arrives on a new connection after this was sent; none where it is closed or
/// silent. `None` where no connection can be opened.
async fn said(address: &ConnectionAddr, sent: &str) -> Option<Vec<u8>> {
    let opened = timeout(GREETING_TIMEOUT, stream::unused(address)).await.ok()?;
    let mut stream = opened.ok()??;
    let mut text = [0; 128];
    let answer = async {
        stream.write_all(sent.as_bytes()).await?;
        stream.read(&mut text).await
    };
    let length = timeout(GREETING_TIMEOUT, answer).await.ok().and_then(Result::ok);
    Some(text[..length.unwrap_or_default()].to_vec())
}
