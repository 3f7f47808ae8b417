//! The servers that take over from one another, and connecting to the one that is the primary now.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Socket};

use super::error::of_connecting;
use crate::store::remote::error::{CallError, Transient};
use crate::sys::sync::Mutex;
use crate::sys::time::Instant;
use crate::value::error::UnavailableReason as Why;

/// Shortest time for one host, whatever the manager's timeout is.
const LEAST: Duration = Duration::from_millis(100);
/// So many addresses of a host are tried in the time for it.
const ADDRESSES: u32 = 2;

/// The hosts of a URL, each with its settings. All connections to them share the order.
#[derive(Clone)]
pub(super) struct Hosts(Arc<Inner>);

struct Inner {
    configs: Vec<Config>,
    /// In which order they are asked: one that has failed is the last.
    order: Mutex<Vec<usize>>,
}

impl Hosts {
    /// These, of which there is at least one.
    pub(super) fn new(configs: Vec<Config>) -> Self {
        let order = Mutex::new((0..configs.len()).collect());
        Self(Arc::new(Inner { configs, order }))
    }

    pub(super) fn configs(&self) -> &[Config] {
        &self.0.configs
    }

    /// Whether both share one order.
    pub(super) fn is_same_list(&self, others: &Self) -> bool {
        Arc::ptr_eq(&self.0, &others.0)
    }

    /// Connects to the first one that answers, within this time. Each gets its share of it: a host
    /// that hangs accepts a connection, and never says anything.
    pub(super) async fn connect<T>(
        &self,
        tls: &T,
        time: Duration,
    ) -> Result<(Client, Connection<Socket, T::Stream>), CallError>
    where
        T: MakeTlsConnect<Socket> + Clone,
    {
        // A little before the task that connects is given up, so that the last failure is noted.
        let until = Instant::now() + time - time / 16;
        let order = self.0.order.lock().clone();
        let mut failed = CallError::not_connected();
        for (nth, &host) in order.iter().enumerate() {
            let left = until.saturating_duration_since(Instant::now());
            let share = (left / (order.len() - nth) as u32).max(LEAST);
            let mut config = self.0.configs[host].clone();
            let wanted = config.get_connect_timeout().copied();
            config.connect_timeout(wanted.unwrap_or(share).min(share / ADDRESSES));
            let error = match timeout(share, config.connect(tls.clone())).await {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => of_connecting(error),
                Err(_) => CallError::not_connected(),
            };
            self.ask_last(host);
            // The first of these errors is that of the primary; the next host is a standby, and
            // says only that it is one.
            if !matches!(&failed, CallError::Final(_)) && !is_limit(&failed) {
                failed = error;
            }
        }
        Err(failed)
    }

    fn ask_last(&self, host: usize) {
        let mut order = self.0.order.lock();
        order.retain(|&other| other != host);
        order.push(host);
    }
}

/// Whether the server has no room for one more connection.
pub(super) fn is_limit(error: &CallError) -> bool {
    matches!(error, CallError::Transient(Transient { reason: Why::ConnectionLimit, .. }))
}
