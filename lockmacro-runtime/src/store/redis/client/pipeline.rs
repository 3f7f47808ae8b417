//! Commands of many callers, sent as a batch: the `redis` crate then writes, reads and wakes once
//! for all of them. With few callers a command is sent directly, which is faster.
//!
//! A command that a caller sends after the release of the same key is written after it, so that
//! nobody has to wait for the answer to a release.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisFuture, RedisResult, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;

use crate::store::redis::client::script::{Script, ScriptCall};
use crate::value::task::{JoinSet, owned, spawn};

/// Calls in flight up to which a command is sent directly.
const DIRECT_MAX: usize = 4;
/// Most commands in a batch: their replies arrive together, too.
const BATCH_MAX: usize = 64;

/// The calls on a connection, from all its callers.
pub(crate) struct Batcher {
    connection: MultiplexedConnection,
    calls: mpsc::UnboundedSender<Call>,
    in_flight: AtomicUsize,
    /// Calls for a batch that was not sent yet.
    unsent: Arc<AtomicUsize>,
}

/// A command, and how it may be sent with others.
pub(crate) struct Command {
    pub(crate) cmd: Cmd,
    /// The script whose calls may be merged into one, if this is such a call.
    pub(crate) merges: Option<&'static Script>,
}

impl Command {
    /// A call of a script by its hash.
    pub(crate) fn call_of(call: ScriptCall<'_>) -> Self {
        Self { cmd: call.by_hash(), merges: call.script.merges.then_some(call.script) }
    }
}

impl From<Cmd> for Command {
    fn from(cmd: Cmd) -> Self {
        Self { cmd, merges: None }
    }
}

struct Call {
    command: Command,
    reply: oneshot::Sender<RedisResult<Value>>,
}

impl Batcher {
    /// Starts a task on this runtime that sends the batches for as long as this lives. In a cluster
    /// (`by_slot`) no calls are merged.
    pub(crate) fn new(connection: MultiplexedConnection, by_slot: bool) -> Self {
        let (calls, called) = mpsc::unbounded_channel();
        let unsent = Arc::<AtomicUsize>::default();
        spawn(send_all(connection.clone(), called, Arc::clone(&unsent), by_slot));
        Self { connection, calls, in_flight: AtomicUsize::new(0), unsent }
    }

    /// Sends a command and returns its reply. When the future is dropped, it is unknown whether the
    /// command was sent.
    pub(crate) fn send(&self, command: Command) -> impl Future<Output = RedisResult<Value>> + Send {
        // Before the first await: otherwise the future would keep room for its arguments.
        let others = self.in_flight.fetch_add(1, Ordering::Relaxed);
        let in_flight = InFlightCall(&self.in_flight);
        // Not directly while a batch is to be sent, which the command could overtake.
        let sent = if others < DIRECT_MAX && self.unsent.load(Ordering::Acquire) == 0 {
            let mut connection = self.connection.clone();
            // Boxed: the future of a waiter stays small.
            Sent::Direct(Box::pin(
                async move { connection.send_packed_command(&command.cmd).await },
            ))
        } else {
            let (reply, answered) = oneshot::channel();
            self.unsent.fetch_add(1, Ordering::AcqRel);
            // Without the task there is no reply, which the receiver notices.
            let _ = self.calls.send(Call { command, reply });
            Sent::Batched(answered)
        };
        async move {
            let _in_flight = in_flight;
            match sent {
                Sent::Direct(reply) => reply.await,
                // The task has ended with its runtime, and so has the connection.
                Sent::Batched(reply) => reply.await.unwrap_or_else(|_| Err(closed())),
            }
        }
    }
}

/// A command that was sent.
enum Sent {
    Direct(RedisFuture<'static, Value>),
    Batched(oneshot::Receiver<RedisResult<Value>>),
}

/// A call, until its reply is there or its caller is dropped.
struct InFlightCall<'a>(&'a AtomicUsize);

impl Drop for InFlightCall<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn closed() -> redis::RedisError {
    std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()
}

async fn send_all(
    connection: MultiplexedConnection,
    mut called: mpsc::UnboundedReceiver<Call>,
    unsent: Arc<AtomicUsize>,
    by_slot: bool,
) {
    let (mut batches, mut calls) = (JoinSet::new(), Vec::new());
    // Whether the server refuses merged calls.
    let one_by_one = Arc::new(AtomicBool::new(by_slot));
    while called.recv_many(&mut calls, BATCH_MAX).await > 0 {
        // Callers that are ready to send do so first.
        yield_now().await;
        while calls.len() < BATCH_MAX
            && let Ok(call) = called.try_recv()
        {
            calls.push(call);
        }
        let begun = calls.len();
        let (mut others, mut mergeable) = (Vec::new(), Vec::<(&'static Script, Vec<Call>)>::new());
        for call in calls.drain(..) {
            match call.command.merges.filter(|_| !one_by_one.load(Ordering::Relaxed)) {
                Some(script) => match mergeable.iter_mut().find(|(of, _)| ptr::eq(*of, script)) {
                    Some((_, calls)) => calls.push(call),
                    None => mergeable.push((script, vec![call])),
                },
                None => others.push(call),
            }
        }
        // The merged calls first: a release among them may be followed by a request for its key.
        for (script, mut calls) in mergeable {
            match calls.len() {
                1 => others.insert(0, calls.remove(0)),
                _ => {
                    let one_by_one = Arc::clone(&one_by_one);
                    begin(&mut batches, merge(connection.clone(), script, calls, one_by_one));
                }
            }
        }
        if !others.is_empty() {
            begin(&mut batches, send(connection.clone(), others));
        }
        unsent.fetch_sub(begun, Ordering::AcqRel);
        while batches.try_join_next().is_some() {}
    }
}

/// Starts to send a batch. It is written after those that were begun before.
fn begin(batches: &mut JoinSet<()>, batch: impl Future<Output = ()> + Send + 'static) {
    let mut batch = Box::pin(owned(batch));
    if batch.as_mut().now_or_never().is_none() {
        batches.spawn(batch);
    }
}

/// Sends these commands as one batch, and each reply to its caller.
async fn send(mut connection: MultiplexedConnection, mut calls: Vec<Call>) {
    // A dropped caller has its lock released by other means, perhaps before this is sent.
    calls.retain(|call| !call.reply.is_closed());
    if calls.is_empty() {
        return;
    }
    let mut pipeline = Pipeline::with_capacity(calls.len());
    let mut callers = Vec::with_capacity(calls.len());
    for Call { command, reply } in calls {
        pipeline.add_command(command.cmd);
        callers.push(reply);
    }
    match connection.send_packed_commands(&pipeline, 0, callers.len()).await {
        // With a reply missing, none could be assigned to its caller.
        Ok(replies) if replies.len() == callers.len() => {
            for (caller, reply) in callers.into_iter().zip(replies) {
                let _ = caller.send(Ok(reply));
            }
        }
        Ok(_) => {}
        Err(error) => {
            for caller in callers {
                let _ = caller.send(Err(error.clone()));
            }
        }
    }
}

/// Merges all of these calls into one call of the script, which spares the server most of the cost.
/// A call that the script skips is sent by itself.
async fn merge(
    mut connection: MultiplexedConnection,
    script: &Script,
    mut calls: Vec<Call>,
    one_by_one: Arc<AtomicBool>,
) {
    calls.retain(|call| !call.reply.is_closed());
    let all = script.merged(calls.iter().map(|call| &call.command.cmd));
    let found = match connection.send_packed_command(&all).await {
        Ok(Value::Array(found)) if found.len() == calls.len() => found,
        // The merged call was refused as a whole, and nothing was applied.
        Ok(Value::ServerError(error)) => {
            if error.code() == "NOSCRIPT" {
                return answer(calls, || Ok(Value::ServerError(error.clone())));
            }
            if error.code() == "CROSSSLOT" {
                one_by_one.store(true, Ordering::Relaxed);
            }
            return send(connection, calls).await;
        }
        Ok(_) => return,
        Err(error) => return answer(calls, || Err(error.clone())),
    };
    let mut resend = Vec::new();
    for (call, found) in calls.into_iter().zip(found) {
        match found {
            Value::Int(0..) => drop(call.reply.send(Ok(found))),
            _ => resend.push(call),
        }
    }
    if !resend.is_empty() {
        send(connection, resend).await;
    }
}

/// Sends the same reply to all of these callers.
fn answer(calls: Vec<Call>, reply: impl Fn() -> RedisResult<Value>) {
    for call in calls {
        let _ = call.reply.send(reply());
    }
}
