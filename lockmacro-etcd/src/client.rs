//! The nodes of a cluster. One of them is asked, until it does not answer: then the next one is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockmacro_runtime::store::StoreError;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::api::{self, Request};
use crate::error::CallError;
use crate::grpc::Connection;
use crate::options::EtcdOptions;
#[cfg(feature = "tls")]
use crate::tls;
use crate::wire::Answer;

#[derive(Debug)]
pub(crate) struct Client {
    /// `http://host:port` or `https://host:port`.
    endpoints: Arc<[String]>,
    pub(crate) options: EtcdOptions,
    current: Mutex<Current>,
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
}

impl Client {
    /// Not connected yet.
    pub(crate) fn new(endpoints: Arc<[String]>, options: EtcdOptions) -> Self {
        Self { endpoints, options, current: Mutex::default() }
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
        format!("etcd at {}", self.endpoints.join(", "))
    }

    /// How long one request may take.
    pub(crate) fn answer_time(&self) -> Duration {
        self.options.timeout / REQUESTS_PER_TIMEOUT
    }

    /// A connection to a node that has answered so far.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>, CallError> {
        let began = Instant::now();
        let mut current = self.current.lock().await;
        if let Some(connection) = current.connection.as_ref().filter(|on| !on.is_closed()) {
            return Ok(Arc::clone(connection));
        }
        // Callers that have waited meanwhile do not try all nodes again, one after the other.
        if let Some((_, failure)) = current.failed.as_ref().filter(|(at, _)| *at > began) {
            return Err(failure.clone());
        }
        let mut failure = CallError::not_sent("no endpoint");
        for _ in 0..self.endpoints.len() {
            let endpoint = &self.endpoints[current.endpoint];
            match timeout(self.answer_time(), self.connect(endpoint)).await {
                Ok(Ok(connection)) => {
                    let connection = Arc::new(connection);
                    current.connection = Some(Arc::clone(&connection));
                    return Ok(connection);
                }
                Ok(Err(error)) => failure = error,
                Err(_) => failure = CallError::not_sent("no answer"),
            }
            failure = failure.at(endpoint);
            current.endpoint = (current.endpoint + 1) % self.endpoints.len();
        }
        current.failed = Some((Instant::now(), failure.clone()));
        Err(failure)
    }

    /// Asks on a connection. One whose node gives no answer to anything is replaced, and so is one
    /// whose login has ended.
    pub(crate) async fn call(
        &self,
        on: &Connection,
        request: Request,
    ) -> Result<Answer, CallError> {
        let began = Instant::now();
        let answer = on.call(request, self.answer_time()).await;
        if let Err(failure) = &answer
            && (failure.is_of_the_login()
                || failure.is_of_the_node() && !on.has_answered_since(began))
        {
            self.leave(on).await;
        }
        answer
    }

    /// Leaves the node of a connection for the next one.
    pub(crate) async fn leave(&self, connection: &Connection) {
        let mut current = self.current.lock().await;
        let is_current = |current: &mut Arc<Connection>| std::ptr::eq(&**current, connection);
        if current.connection.take_if(is_current).is_some() {
            current.endpoint = (current.endpoint + 1) % self.endpoints.len();
        }
        connection.close();
    }

    /// Ends the connection. The next request opens another one.
    pub(crate) fn close(&self) {
        if let Ok(mut current) = self.current.try_lock()
            && let Some(connection) = current.connection.take()
        {
            connection.close();
        }
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
