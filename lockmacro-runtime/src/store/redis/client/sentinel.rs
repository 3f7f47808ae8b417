//! The address of the primary, as the sentinels name it.

use std::cmp::Reverse;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, Value};
use tokio::time::timeout;

use crate::store::redis::client::error::{CallError, Transient, unexpected};
use crate::store::redis::client::stream;
use crate::store::redis::client::url::SentinelGroup;
use crate::value::applied::Applied;
use crate::value::error::{LockError, Unavailability};
use crate::value::random::HashMap;
use crate::value::sync::{Mutex, MutexGuard};
use crate::value::task::{JoinSet, owned};

/// The sentinels of one primary, and a connection to each that has answered.
pub(crate) struct Sentinels {
    group: SentinelGroup,
    idle: IdleConnections,
}

/// Idle connections to the sentinels, by their number; `None` once they are closed.
#[derive(Clone)]
struct IdleConnections(Arc<Mutex<Option<HashMap<usize, MultiplexedConnection>>>>);

impl IdleConnections {
    /// Takes the connection to one sentinel; another caller opens its own meanwhile.
    fn take(&self, nth: usize) -> Option<MultiplexedConnection> {
        self.all().as_mut()?.remove(&nth)
    }

    fn put(&self, nth: usize, connection: MultiplexedConnection) {
        if let Some(all) = &mut *self.all() {
            all.insert(nth, connection);
        }
    }

    fn all(&self) -> MutexGuard<'_, Option<HashMap<usize, MultiplexedConnection>>> {
        self.0.lock()
    }
}

impl Sentinels {
    /// The sentinels of a URL, not connected yet.
    pub(crate) fn new(group: SentinelGroup) -> Self {
        let idle = IdleConnections(Arc::new(Mutex::new(Some(HashMap::default()))));
        Self { group, idle }
    }

    /// Closes the connections to the sentinels, and keeps none from now on.
    pub(crate) fn close(&self) {
        self.idle.all().take();
    }

    /// The server that a majority of all sentinels names.
    pub(crate) async fn agreed(&self) -> Option<ConnectionAddr> {
        let (at, times) = self.vote().await.ok()?;
        (2 * times > self.group.at.len()).then_some(at)
    }

    /// The server to connect to.
    pub(crate) async fn primary(&self) -> Result<ConnectionAddr, CallError> {
        self.vote().await.map(|(at, _)| at)
    }

    /// Asks all sentinels. Returns the server that a majority of all names, or that most of those
    /// name that answer in time; and the number of sentinels that name it.
    ///
    /// A sentinel that was cut off names an old primary for a long time.
    async fn vote(&self) -> Result<(ConnectionAddr, usize), CallError> {
        let mut asked = JoinSet::new();
        for (nth, at) in self.group.at.iter().enumerate() {
            let client = self.group.settings.client(at).map_err(CallError::Final)?;
            let (name, budget) = (self.group.name.clone(), self.group.budget);
            let idle = self.idle.clone();
            asked.spawn(owned(async move {
                let late = |_| Err(CallError::timeout("asking a sentinel", Applied::No));
                timeout(budget, ask(client, &name, &idle, nth)).await.unwrap_or_else(late)
            }));
        }
        let mut named: Vec<(ConnectionAddr, usize)> = Vec::new();
        let mut error = CallError::timeout("asking the sentinels", Applied::No);
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
        // Without this the connections of the other tasks would not be kept. Each task has a
        // timeout.
        asked.detach_all();
        named.sort_by_key(|(_, times)| Reverse(*times));
        match named.as_slice() {
            // One side was cut off, and it is unknown which.
            [(_, times), (_, others), ..] if times == others => {
                let detail = "the sentinels do not agree which server is the primary";
                Err(CallError::timeout(detail, Applied::No))
            }
            [most, ..] => Ok(most.clone()),
            [] => Err(error),
        }
    }
}

/// Asks the `nth` sentinel, on an idle connection or a new one.
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
    let opened = stream::connection(&client, &AsyncConnectionConfig::new()).await;
    let mut connection = opened.map_err(CallError::unapplied)?;
    let answer = connection.send_packed_command(&question).await.and_then(Value::extract_error);
    let answer = answer.map_err(CallError::unapplied)?;
    idle.put(nth, connection);
    read_address(answer, name)
}

/// Reads the address of a primary.
fn read_address(answer: Value, name: &str) -> Result<ConnectionAddr, CallError> {
    match answer {
        Value::Nil => Err(CallError::Final(LockError::invalid_url(format!(
            "the sentinels monitor no primary named `{name}`"
        )))),
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

/// Whether a reply to ROLE is that of a server that accepts writes. An error reply counts as
/// one: the user may lack the right to ask.
pub(crate) fn is_primary(role: &Result<Value, redis::RedisError>) -> bool {
    match role {
        Ok(Value::Array(parts)) => {
            !matches!(parts.first(), Some(Value::BulkString(role)) if role != b"master")
        }
        Err(error) => error.code().is_some(),
        _ => true,
    }
}

/// The error for a server that the sentinels name, and that is a replica.
pub(crate) fn no_primary() -> CallError {
    let detail = "the sentinels still name a server that is no longer the primary";
    let transient = Transient::new(Unavailability::ReadOnly, detail, Applied::No);
    CallError::Transient(transient.replacing())
}
