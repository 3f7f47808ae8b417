//! The nodes of a cluster. One of them is asked, until it does not answer: then the next one is.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use lockmacro_runtime::store::StoreError;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::api::{self, Request};
use crate::error::CallError;
use crate::grpc::Connection;
use crate::options::{EtcdOptions, shown};
#[cfg(feature = "tls")]
use crate::tls;
use crate::wire::Answer;

pub(crate) struct Client {
    /// `http://host:port` or `https://host:port`.
    endpoints: Arc<[String]>,
    pub(crate) options: EtcdOptions,
    current: Mutex<Current>,
    /// Whoever has it tries the nodes, for all.
    connecting: Arc<tokio::sync::Mutex<()>>,
}

/// The answers that the engine waits for take no longer than a quarter of its timeout. A node is
/// given up before that.
const REQUESTS_PER_TIMEOUT: u32 = 5;

/// The connection that all requests use.
#[derive(Debug, Default)]
struct Current {
    connection: Option<Arc<Connection>>,
    /// The node that it leads to, or that is tried next.
    endpoint: usize,
    /// When no node could be reached, and why.
    failed: Option<(Instant, CallError)>,
    /// After that, a connection is of the call alone that has opened it.
    is_closed: bool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl Client {
    /// Not connected yet.
    pub(crate) fn new(endpoints: Arc<[String]>, options: EtcdOptions) -> Self {
        Self { endpoints, options, current: Mutex::default(), connecting: Arc::default() }
    }

    /// The same nodes, through a connection of its own.
    pub(crate) fn apart(&self) -> Self {
        Self::new(Arc::clone(&self.endpoints), self.options.clone())
    }

    /// Says what is wrong with the options or the endpoints.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.options.check(&self.endpoints)
    }

    pub(crate) fn name(&self) -> String {
        let shown: Vec<_> = self.endpoints.iter().map(|endpoint| shown(endpoint)).collect();
        format!("etcd at {}", shown.join(", "))
    }

    /// How long one request may take.
    pub(crate) fn answer_time(&self) -> Duration {
        self.options.timeout / REQUESTS_PER_TIMEOUT
    }

    /// A connection to a node that has answered so far.
    ///
    /// A task looks for one, so that every node is tried also if the caller waits for less time.
    pub(crate) async fn connection(self: &Arc<Self>) -> Result<Arc<Connection>, CallError> {
        let began = Instant::now();
        if let Some(connection) = self.current().open() {
            return Ok(connection);
        }
        let turn = Arc::clone(&self.connecting).lock_owned().await;
        let this = Arc::clone(self);
        let connected = tokio::spawn(async move {
            let _turn = turn;
            this.connect_to_any(began).await
        });
        connected.await.unwrap_or_else(|end| Err(CallError::not_sent(end)))
    }

    async fn connect_to_any(&self, began: Instant) -> Result<Arc<Connection>, CallError> {
        if let Some(connection) = self.current().open() {
            return Ok(connection);
        }
        // Callers that have waited meanwhile do not try all nodes again, one after the other.
        let failed = self.current().failed.clone();
        if let Some((_, failure)) = failed.filter(|(at, _)| *at > began) {
            return Err(failure);
        }
        let mut failure = CallError::not_sent("no endpoint");
        for _ in 0..self.endpoints.len() {
            let nth = self.current().endpoint;
            let endpoint = &self.endpoints[nth];
            failure = match timeout(self.answer_time(), self.connect(endpoint)).await {
                Ok(Ok(connection)) => {
                    let connection = Arc::new(connection);
                    let mut current = self.current();
                    // The store may have been closed since.
                    current.connection = (!current.is_closed).then(|| Arc::clone(&connection));
                    return Ok(connection);
                }
                Ok(Err(error)) => error,
                Err(_) => CallError::not_sent("no answer"),
            };
            failure = failure.at(shown(endpoint));
            self.current().endpoint = (nth + 1) % self.endpoints.len();
        }
        self.current().failed = Some((Instant::now(), failure.clone()));
        Err(failure)
    }

    /// Sends a request on a connection at once. A connection whose node gives no answer to anything
    /// is replaced, and so is one whose login has ended.
    ///
    /// A task waits for the answer: a node that gives none is left also if every caller waits for
    /// less time.
    pub(crate) fn call(
        self: &Arc<Self>,
        on: &Arc<Connection>,
        request: Request,
    ) -> impl Future<Output = Result<Answer, CallError>> + Send + use<> {
        let this = Arc::clone(self);
        let on = Arc::clone(on);
        let mut asked = Box::pin(async move {
            let began = Instant::now();
            let answer = on.call(request, this.answer_time()).await;
            if let Err(failure) = &answer
                && (failure.is_of_the_login()
                    || failure.is_of_the_node() && !on.has_answered_since(began))
            {
                this.leave(&on);
            }
            answer
        });
        // The first poll sends it. Tasks would send requests in any order.
        let answer = asked.as_mut().now_or_never();
        let answer = tokio::spawn(async move {
            match answer {
                Some(answer) => answer,
                None => asked.await,
            }
        });
        async { answer.await.unwrap_or_else(|end| Err(CallError::unanswered(end))) }
    }

    /// Leaves the node of a connection for the next one.
    fn leave(&self, connection: &Connection) {
        let mut current = self.current();
        let is_current = |current: &mut Arc<Connection>| std::ptr::eq(&**current, connection);
        if current.connection.take_if(is_current).is_some() {
            current.endpoint = (current.endpoint + 1) % self.endpoints.len();
        }
        connection.close();
    }

    /// Ends the connection as soon as what is in flight on it has been answered. A later request
    /// opens one for itself.
    pub(crate) fn close(&self) {
        let mut current = self.current();
        current.is_closed = true;
        current.connection = None;
    }

    /// It is whole at any time, also if a thread has panicked.
    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self, endpoint: &str) -> Result<Connection, CallError> {
        let (scheme, address) = endpoint.split_once("://").unwrap_or(("http", endpoint));
        let tcp = TcpStream::connect(address).await.map_err(CallError::not_sent)?;
        tcp.set_nodelay(true).map_err(CallError::not_sent)?;
        let origin = endpoint.to_owned();
        let mut connection = match scheme {
            #[cfg(feature = "tls")]
            "https" => {
                let tls = tls::encrypted(tcp, address, &self.options).await?;
                Connection::open(tls, origin).await?
            }
            _ => Connection::open(tcp, origin).await?,
        };
        if let Some((name, password)) = &self.options.user {
            let login = api::authenticate(name, password);
            // Its answer is no sign that locks are granted: a node on its own cannot know.
            let answer = connection.call(login, self.answer_time()).await?;
            connection.log_in(answer.bytes(2));
        }
        Ok(connection)
    }
}

impl Current {
    fn open(&self) -> Option<Arc<Connection>> {
        self.connection.clone().filter(|on| !on.is_closed())
    }
}
