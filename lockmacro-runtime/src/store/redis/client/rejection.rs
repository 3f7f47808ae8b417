//! The reason why what listens at an address accepts no login: it has too many clients, it is no
//! Redis server, or it does not have the database.

use std::time::Duration;

use redis::{AsyncConnectionConfig, ConnectionAddr, cmd};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::store::redis::client::error::full;
use crate::store::redis::client::settings::Settings;
use crate::store::redis::client::stream;
use crate::store::remote::error::{RemoteError, Transient};
use crate::sys::random::HashMap;
use crate::value::error::{LockError, UnavailableReason, setting_name};
use crate::value::escaped::Escaped;

/// Longest time to wait for such a text, and to ask how many databases a server has.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(200);
/// Most characters of a text that an error shows.
const SHOWN: usize = 40;
/// The first bytes of an answer of a server that wants TLS, to anything else: an alert.
const TLS_ALERT: u8 = 21;
const NO_REDIS: &str = "it does not speak the Redis protocol";

/// A more telling error for a connection that could not be opened.
pub(crate) async fn explained(
    settings: &Settings,
    at: &ConnectionAddr,
    error: RemoteError,
) -> RemoteError {
    match error {
        RemoteError::Transient(error) if !error.login => unanswered(at, error).await,
        // The only setting that a server refuses is the database.
        RemoteError::Final(LockError::InvalidSetting { setting: setting_name::DB, detail }) => {
            let db = settings.login.db();
            let count = timeout(ANSWER_TIMEOUT, databases(settings, at)).await.ok().flatten();
            let detail = match count {
                Some(count) => format!(
                    "the server {at} has {count} databases, from 0 on, and no database {db}: \
                     choose another, or raise its `databases`"
                ),
                None => {
                    format!("the server {at} has no database {db} ({detail}): choose another")
                }
            };
            RemoteError::Final(LockError::invalid(setting_name::DB, detail))
        }
        error => error,
    }
}

/// The number of databases that a server has, where the user may ask for it.
async fn databases(settings: &Settings, at: &ConnectionAddr) -> Option<String> {
    let login = settings.login.clone().set_db(0);
    let client = settings.with(login).client(at).ok()?;
    let opened = stream::connection(&client, &AsyncConnectionConfig::new()).await;
    let asked = cmd("CONFIG").arg("GET").arg("databases").query_async(&mut opened.ok()?).await;
    asked.ok().and_then(|mut found: HashMap<String, String>| found.remove("databases"))
}

/// The error for a connection on which no login was answered.
async fn unanswered(address: &ConnectionAddr, mut error: Transient) -> RemoteError {
    let sent = match error.reason {
        // A server at its limit of clients says so unasked. A client that writes meanwhile may
        // never read it.
        UnavailableReason::Disconnected => "",
        UnavailableReason::Protocol => "PING\r\n",
        _ => return RemoteError::Transient(error),
    };
    let Some(said) = said(address, sent).await else { return RemoteError::Transient(error) };
    let text = String::from_utf8_lossy(&said);
    match said.as_slice() {
        // A reply of a Redis server.
        [b'+', ..] => {}
        [b'-', ..] => {
            if let Some(full) = full(text[1..].trim_end()) {
                return full;
            }
        }
        [] => {
            "it closes the connection without an answer: it may want TLS, which is `rediss://`, not \
             know `HELLO 3`, which locks need, or not speak the Redis protocol"
                .clone_into(&mut error.detail);
        }
        [TLS_ALERT, ..] => {
            error.detail = format!("{NO_REDIS}: it wants TLS, so write `rediss://`");
        }
        _ => {
            let line: String =
                text.lines().next().unwrap_or_default().chars().take(SHOWN).collect();
            error.reason = UnavailableReason::Protocol;
            error.detail = format!("{NO_REDIS}: it answered `{}`", Escaped(&line));
        }
    }
    RemoteError::Transient(error)
}

/// The text that arrives on a new connection after this was sent; none where it is closed or
/// silent. `None` where no connection can be opened.
async fn said(address: &ConnectionAddr, sent: &str) -> Option<Vec<u8>> {
    let opened = timeout(ANSWER_TIMEOUT, stream::unused(address)).await.ok()?;
    let mut stream = opened.ok()??;
    let mut text = [0; 128];
    let answer = async {
        stream.write_all(sent.as_bytes()).await?;
        stream.read(&mut text).await
    };
    let length = timeout(ANSWER_TIMEOUT, answer).await.ok().and_then(Result::ok);
    Some(text[..length.unwrap_or_default()].to_vec())
}
