//! Connections beside the shared one, for commands that block their connection: one for each call,
//! and a few at most.

use std::time::Duration;

use redis::{Cmd, Pipeline, Value};
use tokio::sync::Semaphore;
use tokio::time::{timeout, timeout_at};

use crate::store::redis::client::budget::Budget;
use crate::store::redis::client::connection::Connection;
use crate::store::redis::client::connector::Connector;
use crate::store::redis::client::error::{CallError, Transient, unexpected};
use crate::store::redis::client::replicas::ReplicaAcks;
use crate::store::redis::client::script::ScriptCall;
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
        (connector, asking): (&Connector, bool),
        call: ScriptCall<'_>,
        replicated: ReplicaAcks,
        budget: Budget,
    ) -> Result<(Value, u32), CallError> {
        let permit = timeout_at(budget.until, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(CallError::timeout("waiting for a connection", Applied::No));
        };
        let kept = self.idle.lock().as_mut().and_then(Vec::pop);
        let (mut connection, command) = match kept.filter(|kept| connector.is_current(kept)) {
            Some(kept) => (kept, call.by_hash()),
            // By its text where the server may not know the hash: otherwise the WAIT that follows
            // would be useless.
            None => {
                let opened = timeout_at(budget.until, connector.open()).await;
                (opened.unwrap_or_else(|_| Err(CallError::not_connected()))?, call.by_text())
            }
        };
        let mut answer =
            eval_and_wait(asking, &mut connection, command, replicated, budget.answer).await;
        if let Err(CallError::NoScript) = answer {
            let text = call.by_text();
            answer = eval_and_wait(asking, &mut connection, text, replicated, budget.answer).await;
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

async fn eval_and_wait(
    asking: bool,
    connection: &mut Connection,
    command: Cmd,
    replicated: ReplicaAcks,
    budget: Duration,
) -> Result<(Value, u32), CallError> {
    let mut both = Pipeline::with_capacity(3);
    if asking {
        both.cmd("ASKING");
    }
    both.add_command(command);
    both.cmd("WAIT").arg(replicated.acks).arg(replicated.milliseconds());
    let skipped = usize::from(asking);
    let replies = timeout(budget, connection.inner.send_packed_commands(&both, skipped, 2));
    let Ok(replies) = replies.await else {
        return Err(CallError::unanswered());
    };
    let mut replies = replies?.into_iter();
    let reply = replies.next().unwrap_or(Value::Nil).extract_error()?;
    match replies.next().unwrap_or(Value::Nil).extract_error()? {
        Value::Int(acked) => Ok((reply, u32::try_from(acked).unwrap_or_default())),
        other => Err(unexpected(&other)),
    }
}
