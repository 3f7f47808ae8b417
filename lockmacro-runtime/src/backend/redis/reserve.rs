//! Connections beside the one that all calls share, for a command that holds up what comes after
//! it: one for each call, and a few at most.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, Pipeline, Value};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{timeout, timeout_at};

use super::connection::Connection;
use super::node::{Node, Patience};
use super::replicated::Replicated;
use super::script::Script;
use super::trouble::{Passing, Trouble};
use super::unexpected;
use crate::key::LockKey;

/// So many calls are under way at once; others wait for their turn.
const PLACES: usize = 16;

pub(super) struct Reserve {
    idle: Mutex<Vec<Connection>>,
    places: Semaphore,
}

impl Default for Reserve {
    fn default() -> Self {
        Self { idle: Mutex::default(), places: Semaphore::new(PLACES) }
    }
}

impl Reserve {
    /// Ends the connections that nobody uses.
    pub(super) fn clear(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        // Nothing that runs under this mutex can panic.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node {
    /// Calls a script that writes, and waits for replicas to acknowledge that; gives the script's
    /// reply, and how many have.
    ///
    /// A task does it, which ends with its caller: one that nobody polls must not keep a place, nor
    /// be given one, while others wait for it.
    pub(super) async fn eval_acknowledged(
        &self,
        script: &'static Script,
        keys: &[LockKey],
        args: &[&str],
        replicated: Replicated,
        patience: Patience,
    ) -> Result<(Value, u32), Trouble> {
        let (node, keys) = (self.clone(), keys.to_vec());
        let args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let args: Vec<_> = args.iter().map(String::as_str).collect();
            let answer = node.eval_in_its_place(script, &keys, &args, replicated, patience).await;
            answer.map_err(|trouble| node.failed(trouble))
        });
        let ended = || Err(Trouble::Passing(Passing::timeout("the runtime has ended", true)));
        task.join_next().await.and_then(Result::ok).unwrap_or_else(ended)
    }

    /// WAIT is for the last write of its own connection. A connection goes back for the next call
    /// only when this one was answered: one whose caller is dropped may still be waiting.
    async fn eval_in_its_place(
        &self,
        script: &Script,
        keys: &[LockKey],
        args: &[&str],
        replicated: Replicated,
        patience: Patience,
    ) -> Result<(Value, u32), Trouble> {
        let reserve = &self.inner.reserve;
        let place = timeout_at(patience.until, reserve.places.acquire()).await;
        let Ok(Ok(_place)) = place else {
            return Err(Trouble::Passing(Passing::timeout("waiting for a connection", false)));
        };
        let idle = self.idle();
        // By its text to a server that may not know it: the WAIT behind it is not to be in vain.
        let command = match idle {
            Some(_) => script.by_hash(keys, args),
            None => script.by_text(keys, args),
        };
        let mut connection = match idle {
            Some(idle) => idle,
            None => self.opened(patience).await?,
        };
        let mut answer = self.and_wait(&mut connection, command, replicated, patience.answer).await;
        if let Err(Trouble::NoScript) = answer {
            let text = script.by_text(keys, args);
            answer = self.and_wait(&mut connection, text, replicated, patience.answer).await;
        }
        match &answer {
            Err(Trouble::Passing(Passing { replace, unknown, .. })) if *replace || *unknown => {
                // The others lead to the same server.
                reserve.clear();
                if *replace {
                    self.changes().broke();
                }
            }
            _ => reserve.idle().push(connection),
        }
        answer
    }

    /// A connection that nobody uses, if there is one.
    fn idle(&self) -> Option<Connection> {
        let idle = self.inner.reserve.idle().pop();
        idle.filter(|idle| self.inner.connector.leads_there(idle))
    }

    async fn opened(&self, patience: Patience) -> Result<Connection, Trouble> {
        let opened = timeout_at(patience.until, self.inner.connector.open_deaf()).await;
        opened.unwrap_or_else(|_| Err(Trouble::Passing(Passing::timeout("connecting", false))))
    }

    async fn and_wait(
        &self,
        connection: &mut Connection,
        command: Cmd,
        replicated: Replicated,
        patience: Duration,
    ) -> Result<(Value, u32), Trouble> {
        let mut both = Pipeline::with_capacity(3);
        if self.is_asking() {
            both.cmd("ASKING");
        }
        both.add_command(command);
        both.cmd("WAIT").arg(replicated.acks).arg(replicated.milliseconds());
        let skipped = usize::from(self.is_asking());
        let replies = timeout(patience, connection.inner.send_packed_commands(&both, skipped, 2));
        let Ok(replies) = replies.await else {
            return Err(Trouble::Passing(Passing::timeout("sent, and not answered", true)));
        };
        let mut replies = replies?.into_iter();
        let reply = replies.next().unwrap_or(Value::Nil).extract_error()?;
        match replies.next().unwrap_or(Value::Nil).extract_error()? {
            Value::Int(acked) => Ok((reply, u32::try_from(acked).unwrap_or_default())),
            other => Err(unexpected(&other)),
        }
    }
}
