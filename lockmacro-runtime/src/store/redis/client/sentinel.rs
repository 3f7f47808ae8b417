//! The address of the primary, as the sentinels name it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, RedisResult, Value};
use tokio::time::timeout;

use crate::store::redis::client::settings::Settings;
use crate::store::redis::client::stream;
use crate::store::remote::error::RemoteError;
use crate::sys::random::HashMap;
use crate::sys::sync::Mutex;
use crate::sys::task::{JoinSet, owned};
use crate::value::applied::Applied;
use crate::value::error::LockError;

/// Idle connections to the sentinels, by their number; `None` once they are closed.
type IdleConnections = Arc<Mutex<Option<HashMap<usize, MultiplexedConnection>>>>;

/// The sentinels of one primary and its replicas, and a connection to each that has answered.
#[derive(Clone)]
pub(crate) struct Sentinels {
    at: Vec<ConnectionAddr>,
    /// The name under which they monitor the primary.
    name: String,
    /// The login at the sentinels.
    settings: Settings,
    /// The time limit for one sentinel.
    budget: Duration,
    idle: IdleConnections,
    last: Arc<LastPrimary>,
}

/// The primary that any connection of a manager was opened to last.
#[derive(Default)]
struct LastPrimary {
    at: Mutex<Option<ConnectionAddr>>,
    /// Counts the primaries that have followed one another.
    generation: AtomicU64,
}

impl Sentinels {
    /// Sentinels, not connected yet.
    pub(crate) fn new(
        at: Vec<ConnectionAddr>,
        name: String,
        settings: Settings,
        budget: Duration,
    ) -> Self {
        Self { at, name, settings, budget, idle: no_connections(), last: Arc::default() }
    }

    /// The same sentinels, through connections of their own.
    pub(crate) fn apart(&self) -> Self {
        Self { idle: no_connections(), ..self.clone() }
    }

    /// The primary that was connected to last.
    pub(crate) fn last(&self) -> Option<ConnectionAddr> {
        self.last.at.lock().clone()
    }

    /// The number of the primary that was connected to last.
    pub(crate) fn generation(&self) -> u64 {
        self.last.generation.load(Ordering::Relaxed)
    }

    /// Notes a new connection to a primary. Returns the primary's number, and whether it is another
    /// one than before.
    pub(crate) fn opened(&self, at: &ConnectionAddr) -> (u64, bool) {
        let last = self.last.at.lock().replace(at.clone());
        let moved = last.is_some_and(|last| last != *at);
        let before = self.last.generation.fetch_add(u64::from(moved), Ordering::SeqCst);
        (before + u64::from(moved), moved)
    }

    /// Closes the connections to the sentinels, and keeps none from now on.
    pub(crate) fn close(&self) {
        self.idle.lock().take();
    }

    /// Asks all sentinels. Returns the server that a majority of all names, or that most of those
    /// name that answer in time; and whether it is a majority of all.
    ///
    /// A sentinel that was cut off names an old primary for a long time.
    pub(crate) async fn primary(&self) -> Result<(ConnectionAddr, bool), RemoteError> {
        let mut asked = JoinSet::new();
        for (nth, at) in self.at.iter().enumerate() {
            let client = self.settings.client(at).map_err(RemoteError::Final)?;
            let name = self.name.clone();
            let budget = self.budget;
            let idle = Arc::clone(&self.idle);
            asked.spawn(owned(async move {
                let late = |_| Err(RemoteError::timeout("asking a sentinel", Applied::No));
                timeout(budget, ask(client, &name, &idle, nth)).await.unwrap_or_else(late)
            }));
        }
        let is_majority = |times: usize| 2 * times > self.at.len();
        let mut named = BTreeMap::<(String, u16), usize>::new();
        let mut error = RemoteError::timeout("asking the sentinels", Applied::No);
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(at)) => {
                    let times = named.entry(at).or_default();
                    *times += 1;
                    if is_majority(*times) {
                        break;
                    }
                }
                Ok(Err(cause)) => error = RemoteError::unless_final(error, cause),
                Err(_) => {}
            }
        }
        // Without this the connections of the other tasks would not be kept. Each task has a
        // timeout.
        asked.detach_all();
        let mut named: Vec<_> = named.into_iter().collect();
        named.sort_by_key(|(_, times)| Reverse(*times));
        match named.as_slice() {
            // One side was cut off, and it is unknown which.
            [(_, times), (_, others), ..] if times == others => {
                let detail = "the sentinels do not agree which server is the primary";
                Err(RemoteError::timeout(detail, Applied::No))
            }
            [((host, port), times), ..] => {
                Ok((ConnectionAddr::Tcp(host.clone(), *port), is_majority(*times)))
            }
            [] => Err(error),
        }
    }
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at: Vec<_> = self.at.iter().map(ToString::to_string).collect();
        write!(f, "{} by sentinels {}", self.name, at.join(","))
    }
}

fn no_connections() -> IdleConnections {
    Arc::new(Mutex::new(Some(HashMap::default())))
}

/// Asks the `nth` sentinel for a host and port, on an idle connection or a new one.
async fn ask(
    client: Client,
    name: &str,
    idle: &IdleConnections,
    nth: usize,
) -> Result<(String, u16), RemoteError> {
    let mut question = redis::cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    // Another caller opens a connection of its own meanwhile.
    let kept = idle.lock().as_mut().and_then(|idle| idle.remove(&nth));
    let mut answered = None;
    if let Some(mut kept) = kept {
        answered = question.query_async(&mut kept).await.ok().map(|answer| (kept, answer));
    }
    let (connection, answer): (_, Option<_>) = match answered {
        Some(answered) => answered,
        None => {
            let opened = stream::connection(&client, &AsyncConnectionConfig::new()).await;
            let mut new = opened.map_err(RemoteError::unapplied)?;
            let answer = question.query_async(&mut new).await.map_err(RemoteError::unapplied)?;
            (new, answer)
        }
    };
    if let Some(idle) = &mut *idle.lock() {
        idle.insert(nth, connection);
    }
    answer.ok_or_else(|| {
        let detail = format!("the sentinels monitor no primary named `{name}`");
        RemoteError::Final(LockError::invalid_url(detail))
    })
}

/// Whether a reply to ROLE is that of a server that accepts writes. An error reply counts as
/// one: the user may lack the right to ask.
pub(crate) fn is_primary(role: RedisResult<Value>) -> bool {
    match role.and_then(Value::extract_error) {
        Ok(Value::Array(parts)) => {
            !matches!(parts.first(), Some(Value::BulkString(role)) if role != b"master")
        }
        Err(error) => error.code().is_some(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::client::connector::Server;
    use crate::store::redis::client::url::{Addresses, Deployment};
    use crate::value::url::Url;

    #[test]
    fn sentinels_are_read_with_their_ports_and_their_password() {
        let url = "redis-sentinel://u:p%40@one,two:7,[::1]/main/3?sentinel_password=w%26";
        let read = Deployment::of(&Url::parse(url).unwrap(), Duration::from_secs(2));
        let Ok(Deployment { at: Addresses::One(Server::Named(sentinels)), settings, .. }) = read
        else {
            panic!("not read");
        };
        let at: Vec<_> = sentinels.at.iter().map(ToString::to_string).collect();
        assert_eq!(at, ["one:26379", "two:7", "::1:26379"]);
        assert_eq!(sentinels.name, "main");
        let login = &settings.login;
        assert_eq!((login.username(), login.password(), login.db()), (Some("u"), Some("p@"), 3));
        assert_eq!(sentinels.settings.login.password(), Some("w&"));
    }
}
