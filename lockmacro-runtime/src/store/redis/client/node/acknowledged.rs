//! Calls that replicas have to acknowledge, each on a connection beside the shared one: the WAIT
//! after a call blocks its connection.

use redis::{Cmd, Value, cmd};
use tokio::time::{timeout, timeout_at};

use super::Node;
use crate::store::redis::client::error::unexpected;
use crate::store::redis::client::script::ScriptCall;
use crate::store::redis::client::url::ReplicaAcks;
use crate::store::remote::budget::Budget;
use crate::store::remote::error::{RemoteError, Transient};
use crate::sys::task::{JoinSet, owned};
use crate::value::applied::Applied;

impl Node {
    /// Calls a script that writes, and waits for replicas to acknowledge the write. Returns the
    /// script's reply and the number of replicas.
    ///
    /// A task of its own makes the call, and ends with its caller. Otherwise a caller that nobody
    /// polls could keep a permit from the others.
    pub(crate) async fn eval_acknowledged(
        &self,
        call: ScriptCall<'_>,
        replicated: ReplicaAcks,
        budget: Budget,
    ) -> Result<(Value, u32), RemoteError> {
        let node = self.clone();
        let commands = [call.by_hash(), call.by_text()];
        let mut task = JoinSet::new();
        task.spawn(owned(async move {
            let answer = node.eval_and_wait(commands, replicated, budget).await;
            answer.map_err(|error| node.failed(error))
        }));
        let ended = || Err(RemoteError::timeout("the runtime has ended", Applied::Unknown));
        task.join_next().await.and_then(Result::ok).unwrap_or_else(ended)
    }

    /// Calls a script and then WAIT, which counts for the last write of its own connection.
    ///
    /// A connection is kept only when its call was answered: after a caller was dropped the
    /// connection may still be blocked.
    async fn eval_and_wait(
        &self,
        [by_hash, by_text]: [Cmd; 2],
        replicated: ReplicaAcks,
        budget: Budget,
    ) -> Result<(Value, u32), RemoteError> {
        let permit = timeout_at(budget.until, self.inner.blocking_permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(RemoteError::timeout("waiting for a connection", Applied::No));
        };
        let kept = self.inner.blocking.lock().pop();
        let (connection, command) = match kept.filter(|kept| self.connector().is_current(kept)) {
            Some(kept) => (kept, by_hash),
            // By its text where the server may not know the hash: otherwise the WAIT that follows
            // would be useless.
            None => {
                let opened = timeout_at(budget.until, self.connector().open()).await;
                (opened.unwrap_or_else(|_| Err(RemoteError::not_connected()))?, by_text.clone())
            }
        };
        let eval_and_wait = async |command: Cmd| {
            let mut wait = cmd("WAIT");
            wait.arg(replicated.acks).arg(replicated.milliseconds());
            let sent = connection.send_pair(self.asking, command.into(), Some(wait));
            let Ok(replies) = timeout(budget.answer, sent).await else {
                return Err(RemoteError::unanswered());
            };
            let [reply, acked] = replies?;
            let reply = reply.extract_error()?;
            match acked.extract_error()? {
                Value::Int(acked) => Ok((reply, u32::try_from(acked).unwrap_or_default())),
                other => Err(unexpected(&other)),
            }
        };
        let mut answer = eval_and_wait(command).await;
        if let Err(RemoteError::NoScript) = answer {
            answer = eval_and_wait(by_text).await;
        }
        let mut kept = self.inner.blocking.lock();
        match &answer {
            Err(RemoteError::Transient(Transient { replace, applied, .. }))
                if *replace || applied.may_be() =>
            {
                // The others lead to the same server.
                kept.clear();
                if *replace {
                    self.connector().monitor.broken();
                }
            }
            _ if self.is_closed() => {}
            _ => kept.push(connection),
        }
        answer
    }
}
