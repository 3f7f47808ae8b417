//! Where the primary is, as the sentinels say.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionAddr, Value};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::store::redis::client::error::unexpected;
use crate::store::redis::client::error::{CallError, Transient};
use crate::store::redis::client::url::SentinelGroup;
use crate::value::error::LockError;
use crate::value::sync::{Mutex, MutexGuard};
use crate::value::unavailability::Unavailability;

/// The sentinels of one primary, and a connection to each that has answered.
pub(crate) struct Sentinels {
    group: SentinelGroup,
    idle: IdleConnections,
}

/// A connection to each sentinel that has answered, for the next question.
#[derive(Clone, Default)]
struct IdleConnections(Arc<Mutex<HashMap<usize, MultiplexedConnection>>>);

impl IdleConnections {
    /// Takes the connection to one of them: who asks it meanwhile opens another one.
    fn take(&self, nth: usize) -> Option<MultiplexedConnection> {
        self.all().remove(&nth)
    }

    fn put(&self, nth: usize, connection: MultiplexedConnection) {
        self.all().insert(nth, connection);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<usize, MultiplexedConnection>> {
        self.0.lock()
    }
}

impl Sentinels {
    /// The sentinels of a URL, not connected yet.
    pub(crate) fn new(group: SentinelGroup) -> Self {
        Self { group, idle: IdleConnections::default() }
    }

    /// Ends the connections to them.
    pub(crate) fn disconnect(&self) {
        self.idle.all().clear();
    }

    /// The server that most of them all name, whoever does not answer.
    pub(crate) async fn agreed(&self) -> Option<ConnectionAddr> {
        let (at, times) = self.vote().await.ok()?;
        (2 * times > self.group.at.len()).then_some(at)
    }

    /// Where to connect to.
    pub(crate) async fn primary(&self) -> Result<ConnectionAddr, CallError> {
        self.vote().await.map(|(at, _)| at)
    }

    /// Asks all of them, and goes where most of them all say; when fewer answer in time, where most
    /// of those say. One that was cut off names a primary of old for long. With how many say so.
    async fn vote(&self) -> Result<(ConnectionAddr, usize), CallError> {
        let mut asked = JoinSet::new();
        for (nth, at) in self.group.at.iter().enumerate() {
            let client = self.group.settings.client(at, None).map_err(CallError::Final)?;
            let (name, budget) = (self.group.name.clone(), self.group.budget);
            let idle = self.idle.clone();
            asked.spawn(async move {
                let timed_out =
                    || Err(CallError::Transient(Transient::timeout("asking a sentinel", false)));
                timeout(budget, ask(client, &name, &idle, nth))
                    .await
                    .unwrap_or_else(|_| timed_out())
            });
        }
        let mut named: Vec<(ConnectionAddr, usize)> = Vec::new();
        let mut error = Transient::timeout("asking the sentinels", false).into();
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(at)) => {
                    let nth = named.iter().position(|(named, _)| *named == at);
                    let nth = nth.unwrap_or_else(|| {
                        named.push((at, 0));
                        named.len() - 1
                    });
                    named[nth].1 += 1;
                    if 2 * named[nth].1 > self.group.at.len() {
                        break;
                    }
                }
                Ok(Err(cause)) => error = CallError::unless_final(error, cause),
                Err(_) => {}
            }
        }
        // Or their connections would not be kept. Each has an end of its own.
        asked.detach_all();
        named.sort_by_key(|(_, times)| Reverse(*times));
        match named.as_slice() {
            // One of them was cut off, and nobody knows which.
            [(_, times), (_, others), ..] if times == others => {
                let detail = "the sentinels do not agree which server is the primary";
                Err(Transient::timeout(detail, false).into())
            }
            [most, ..] => Ok(most.clone()),
            [] => Err(error),
        }
    }
}

/// Asks the `nth` one, by the connection to it that is kept, or a new one.
async fn ask(
    client: Client,
    name: &str,
    idle: &IdleConnections,
    nth: usize,
) -> Result<ConnectionAddr, CallError> {
    let mut question = redis::cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    if let Some(mut connection) = idle.take(nth)
        && let Ok(answer) = connection.send_packed_command(&question).await
        && let Ok(answer) = answer.extract_error()
    {
        idle.put(nth, connection);
        return read_address(answer, name);
    }
    let mut connection =
        client.get_multiplexed_async_connection().await.map_err(CallError::unapplied)?;
    let answer = connection.send_packed_command(&question).await.and_then(Value::extract_error);
    let answer = answer.map_err(CallError::unapplied)?;
    idle.put(nth, connection);
    read_address(answer, name)
}

/// Whom a sentinel has named.
fn read_address(answer: Value, name: &str) -> Result<ConnectionAddr, CallError> {
    match answer {
        Value::Nil => {
            Err(CallError::Final(LockError::invalid_url(format!("the sentinels know no `{name}`"))))
        }
        Value::Array(parts) => match parts.as_slice() {
            [Value::BulkString(host), Value::BulkString(port)] => {
                let port = std::str::from_utf8(port).ok().and_then(|port| port.parse().ok());
                let port = port.ok_or_else(|| unexpected(&parts[1]))?;
                Ok(ConnectionAddr::Tcp(String::from_utf8_lossy(host).into_owned(), port))
            }
            _ => Err(unexpected(&Value::Array(parts))),
        },
        other => Err(unexpected(&other)),
    }
}

/// Whether an answer to ROLE is that of a server that takes writes. Who may not ask, finds out.
pub(crate) fn is_primary(role: &Result<Value, redis::RedisError>) -> bool {
    match role {
        Ok(Value::Array(parts)) => {
            !matches!(parts.first(), Some(Value::BulkString(role)) if role != b"master")
        }
        Err(error) => error.code().is_some(),
        _ => true,
    }
}

/// What a connection to a replica is, where a primary was named.
pub(crate) fn no_primary() -> CallError {
    CallError::Transient(Transient {
        reason: Unavailability::ReadOnly,
        detail: "the sentinels still name a server that is no primary any more".to_owned(),
        unknown: false,
        replace: true,
    })
}
