//! Calls to a node: one command, several together, or a script.

use std::time::Duration;

use redis::{Pipeline, RedisResult, Value};
use tokio::time::timeout_at;

use crate::store::redis::client::budget::Budget;
use crate::store::redis::client::connection::Connection;
use crate::store::redis::client::error::{CallError, Transient};
use crate::store::redis::client::node::{Inner, Node};
use crate::store::redis::client::pipeline::Command;
use crate::store::redis::client::replicas::ReplicaAcks;
use crate::store::redis::client::script::{Script, ScriptCall};
use crate::value::applied::Applied;
use crate::value::backoff::Backoff;
use crate::value::error::Unavailability;
use crate::value::sync::MutexGuard;
use crate::value::task::{JoinSet, owned};
use crate::value::time::Instant;

/// Calls in a row without an answer after which a connection is discarded.
const UNANSWERED_MAX: u32 = 2;
/// First and longest pause between two connections that are discarded for a single unanswered call.
///
/// It doubles until such a call is answered, so that no storm of connections arises.
const DISCARD_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

impl Node {
    /// Sends a command and waits for its reply.
    pub(crate) async fn call(
        &self,
        command: impl Into<Command>,
        budget: Budget,
    ) -> Result<Value, CallError> {
        let live = self.connect(budget.until).await?;
        self.send(&live, command, budget).await
    }

    /// Sends a command on this connection.
    pub(crate) fn send<'a>(
        &'a self,
        live: &'a Connection,
        command: impl Into<Command>,
        budget: Budget,
    ) -> impl Future<Output = Result<Value, CallError>> + Send + 'a {
        let asked = Instant::now();
        let until = budget.until.min(asked + budget.answer);
        // Made before the await: a future that held the command would be larger for every caller.
        let sent = match self.asking {
            true => Err(Box::pin(live.asking(command.into().cmd))),
            false => Ok(live.send(command.into())),
        };
        async move {
            let reply = match sent {
                Ok(sent) => timeout_at(until, sent).await,
                Err(sent) => Box::pin(timeout_at(until, sent)).await,
            };
            if reply.is_ok() {
                self.round_trip().note(asked);
            }
            self.read(live, reply.ok(), budget.strict)
        }
    }

    /// Sends commands together; returns their replies, errors among them.
    pub(crate) async fn call_all(
        &self,
        commands: &Pipeline,
        count: usize,
        budget: Budget,
    ) -> Result<Vec<Value>, CallError> {
        let live = self.connect(budget.until).await?;
        let until = budget.until.min(Instant::now() + budget.answer);
        let mut connection = live.inner.clone();
        let sent = connection.send_packed_commands(commands, 0, count);
        match timeout_at(until, sent).await {
            Ok(Ok(replies)) => Ok(replies),
            Ok(Err(error)) => self.read(&live, Some(Err(error)), false).map(|_| Vec::new()),
            Err(_) => self.read(&live, None, false).map(|_| Vec::new()),
        }
    }

    /// Reads a reply and updates the state of the connection; `None` is a call without an answer.
    fn read(
        &self,
        live: &Connection,
        reply: Option<RedisResult<Value>>,
        strict: bool,
    ) -> Result<Value, CallError> {
        if live.channels.is_desynchronized() {
            self.discard(live);
            return Err(desynchronized().at(|| self.server()));
        }
        let Some(reply) = reply else {
            let unanswered_calls = live.count_unanswered();
            if if strict { self.may_discard() } else { unanswered_calls >= UNANSWERED_MAX } {
                self.discard(live);
            }
            return Err(self.failed(CallError::unanswered()));
        };
        live.answered();
        if strict {
            *self.next_discard() = None;
        }
        let error = match reply.and_then(Value::extract_error) {
            Ok(value) => {
                self.inner.health.answered(|| self.server());
                return Ok(value);
            }
            Err(error) => {
                self.failed(self.inner.connector.settings.or_next_login(CallError::from(error)))
            }
        };
        if matches!(&error, CallError::Transient(transient) if transient.replace) {
            self.discard(live);
        }
        Err(error)
    }

    /// Whether a connection may be discarded now for a single unanswered call.
    fn may_discard(&self) -> bool {
        let now = Instant::now();
        let mut next_discard = self.next_discard();
        match *next_discard {
            Some((from, _)) if now < from => false,
            last => {
                let first = || Backoff::new(DISCARD_PAUSE.0, DISCARD_PAUSE.1);
                let mut backoff = last.map_or_else(first, |(_, backoff)| backoff);
                *next_discard = Some((now + backoff.step(), backoff));
                true
            }
        }
    }

    fn next_discard(&self) -> MutexGuard<'_, Option<(Instant, Backoff)>> {
        self.inner.next_discard.lock()
    }

    /// Calls a script by its hash, or by its text where the server does not know the hash.
    pub(crate) async fn eval(
        &self,
        call: ScriptCall<'_>,
        budget: Budget,
    ) -> Result<Value, CallError> {
        match self.call(Command::call_of(call), budget).await {
            // Boxed, as every rare step is: the future of a waiter stays small.
            Err(CallError::NoScript) => Box::pin(self.load_and_eval(call, budget)).await,
            reply => reply,
        }
    }

    /// Calls a script that the server does not know yet. Of many callers one sends the text; the
    /// others call by hash once more, which the server reads after the text.
    async fn load_and_eval(
        &self,
        call: ScriptCall<'_>,
        budget: Budget,
    ) -> Result<Value, CallError> {
        if !self.is_first_to_load(call.script, budget.answer) {
            match self.call(call.by_hash(), budget).await {
                Err(CallError::NoScript) => {}
                reply => return reply,
            }
        }
        self.call(call.by_text(), budget).await
    }

    /// Whether no caller has sent the text of a script within this time. Then this one does.
    fn is_first_to_load(&self, script: &'static Script, within: Duration) -> bool {
        let (now, mut loads) = (Instant::now(), self.inner.loads.lock());
        let is_first = loads.get(&**script.hash).is_none_or(|last| *last + within <= now);
        if is_first {
            loads.insert(&**script.hash, now);
        }
        is_first
    }

    /// Calls a script that writes, and waits for replicas to acknowledge the write. Returns the
    /// script's reply and the number of replicas.
    ///
    /// A task of its own makes the call, and ends with its caller. Otherwise a caller that nobody
    /// polls could keep a connection of the pool from the others.
    pub(crate) async fn eval_acknowledged(
        &self,
        call: ScriptCall<'_>,
        replicated: ReplicaAcks,
        budget: Budget,
    ) -> Result<(Value, u32), CallError> {
        let (node, script, keys) = (self.clone(), call.script, call.keys.to_vec());
        let args: Vec<_> = call.args.iter().map(|arg| (*arg).to_owned()).collect();
        let mut task = JoinSet::new();
        task.spawn(owned(async move {
            let args: Vec<_> = args.iter().map(String::as_str).collect();
            let Inner { connector, blocking_pool, .. } = &*node.inner;
            let answer = blocking_pool.eval_acknowledged(
                (connector, node.asking),
                script.with(&keys, &args),
                replicated,
                budget,
            );
            answer.await.map_err(|error| node.failed(error))
        }));
        let ended = || Err(CallError::timeout("the runtime has ended", Applied::Unknown));
        task.join_next().await.and_then(Result::ok).unwrap_or_else(ended)
    }
}

/// A slot has moved away, and from then on replies cannot be matched to their commands: see
/// [`Subscriptions::is_desynchronized`].
///
/// [`Subscriptions::is_desynchronized`]:
///     crate::store::redis::client::subscriptions::Subscriptions::is_desynchronized
fn desynchronized() -> CallError {
    let detail = "a slot of the cluster was moved to another node";
    let transient = Transient::new(Unavailability::Disconnected, detail, Applied::Unknown);
    CallError::Transient(transient.replacing())
}
