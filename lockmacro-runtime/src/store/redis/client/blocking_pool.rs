//! Connections beside the shared one, for commands that block their connection: one for each call,
//! and a few at most.

use redis::{Cmd, Value};
use tokio::sync::Semaphore;
use tokio::time::{timeout, timeout_at};

use crate::store::redis::client::budget::Budget;
use crate::store::redis::client::connection::Connection;
use crate::store::redis::client::connector::Connector;
use crate::store::redis::client::error::{CallError, Transient, unexpected};
use crate::store::redis::client::url::ReplicaAcks;
use crate::value::applied::Applied;
use crate::value::sync::Mutex;

/// Most calls in flight at once; others wait for a connection.
const CONNECTIONS_MAX: usize = 16;

pub(crate) struct BlockingPool {
    /// `None` once the pool is closed.
    idle: Mutex<Option<Vec<Connection>>>,
    permits: Semaphore,
}

impl Default for BlockingPool {
    fn default() -> Self {
        Self { idle: Mutex::new(Some(Vec::new())), permits: Semaphore::new(CONNECTIONS_MAX) }
    }
}

impl BlockingPool {
    /// Closes the idle connections, and keeps none from now on.
    pub(crate) fn close(&self) {
        self.idle.lock().take();
    }

    /// Calls a script and then WAIT, which counts for the last write of its own connection.
    ///
    /// A connection returns to the pool only when its call was answered: after a caller was dropped
    /// the connection may still be blocked.
    pub(crate) async fn eval_acknowledged(
        &self,
        connector: &Connector,
        asking: bool,
        [by_hash, by_text]: [Cmd; 2],
        replicated: ReplicaAcks,
        budget: Budget,
    ) -> Result<(Value, u32), CallError> {
        let permit = timeout_at(budget.until, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(CallError::timeout("waiting for a connection", Applied::No));
        };
        let kept = self.idle.lock().as_mut().and_then(Vec::pop);
        let (connection, command) = match kept.filter(|kept| connector.is_current(kept)) {
            Some(kept) => (kept, by_hash),
            // By its text where the server may not know the hash: otherwise the WAIT that follows
            // would be useless.
            None => {
                let opened = timeout_at(budget.until, connector.open()).await;
                (opened.unwrap_or_else(|_| Err(CallError::not_connected()))?, by_text.clone())
            }
        };
        let eval_and_wait = async |command: Cmd| {
            let mut wait = redis::cmd("WAIT");
            wait.arg(replicated.acks).arg(replicated.milliseconds());
            let sent = connection.send_pair(asking, command.into(), Some(wait));
            let Ok(replies) = timeout(budget.answer, sent).await else {
                return Err(CallError::unanswered());
            };
            let [reply, acked] = replies?;
            let reply = reply.extract_error()?;
            match acked.extract_error()? {
                Value::Int(acked) => Ok((reply, u32::try_from(acked).unwrap_or_default())),
                other => Err(unexpected(&other)),
            }
        };
        let mut answer = eval_and_wait(command).await;
        if let Err(CallError::NoScript) = answer {
            answer = eval_and_wait(by_text).await;
        }
        let mut idle = self.idle.lock();
        match &answer {
            Err(CallError::Transient(Transient { replace, applied, .. }))
                if *replace || applied.may_be() =>
            {
                // The others lead to the same server.
                idle.iter_mut().for_each(Vec::clear);
                if *replace {
                    connector.changes.broken();
                }
            }
            _ => {
                if let Some(idle) = &mut *idle {
                    idle.push(connection);
                }
            }
        }
        answer
    }
}
