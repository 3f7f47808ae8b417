//! One connection to a server, which all calls share.
//!
//! Commands of many callers are sent as a batch: the `redis` crate then writes, reads and wakes
//! once for all of them. With few callers a command is sent directly, which is faster.
//!
//! A request that a caller sends after the uncontended release of the same key is sent after it, so
//! that nobody has to wait for the answer to a release. (Calls that a server refuses to take as one
//! are sent again, after later requests.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::{io, mem, ptr};

use futures_util::future::Either;
use futures_util::{FutureExt as _, TryFutureExt};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;

use crate::store::redis::client::channels::Channels;
use crate::store::redis::client::script::{Script, ScriptCall, Sent};
use crate::sys::task::{JoinSet, here, owned, spawn};

/// Calls in flight up to which a command is sent directly.
const DIRECT_MAX: usize = 4;
/// Most commands in a batch: their replies arrive together, too.
const BATCH_MAX: usize = 64;

/// An open connection.
pub(crate) struct Connection {
    inner: MultiplexedConnection,
    /// The calls to be sent as a batch.
    calls: mpsc::UnboundedSender<QueuedCommand>,
    /// Each call in flight has a clone.
    in_flight: Arc<()>,
    /// Calls for a batch that was not sent yet.
    unsent: Arc<AtomicUsize>,
    /// Calls in a row without an answer.
    unanswered: AtomicU32,
    pub(crate) channels: Arc<Channels>,
    /// The runtime that drives it, if there is one.
    runtime: Option<runtime::Id>,
    /// Which of the primaries that sentinels have named it leads to.
    pub(crate) generation: u64,
}

/// A command, and how it may be sent with others.
pub(crate) struct Command {
    cmd: Cmd,
    /// The script whose calls may be merged into one, if this is such a call.
    merges: Option<&'static Script>,
}

impl From<ScriptCall<'_>> for Command {
    fn from(call: ScriptCall<'_>) -> Self {
        if call.sent == Sent::ByText {
            return call.by_text().into();
        }
        Self { cmd: call.by_hash(), merges: call.script.merges.then_some(call.script) }
    }
}

impl From<Cmd> for Command {
    fn from(cmd: Cmd) -> Self {
        Self { cmd, merges: None }
    }
}

struct QueuedCommand {
    command: Command,
    reply: oneshot::Sender<RedisResult<Value>>,
}

impl Connection {
    /// Starts a task on this runtime that sends the batches for as long as this lives.
    pub(crate) fn new(
        inner: MultiplexedConnection,
        channels: Arc<Channels>,
        generation: u64,
    ) -> Self {
        let (calls, called) = mpsc::unbounded_channel();
        let (in_flight, unsent, unanswered) = <(_, Arc<AtomicUsize>, _)>::default();
        // In a cluster no calls are merged.
        spawn(send_all(inner.clone(), called, Arc::clone(&unsent), channels.grants.by_slot));
        let runtime = here();
        Self { inner, calls, in_flight, unsent, unanswered, channels, runtime, generation }
    }

    /// Sends a command and returns its reply. When the future is dropped, it is unknown whether the
    /// command was sent.
    pub(crate) fn send(&self, command: Command) -> impl Future<Output = RedisResult<Value>> + Send {
        // Before the first await: otherwise the future would keep room for its arguments.
        let in_flight = Arc::clone(&self.in_flight);
        // Without that of the connection, and this call.
        let others = Arc::strong_count(&in_flight) - 2;
        // Not directly while a batch is to be sent, which the command could overtake.
        let sent = if others < DIRECT_MAX && self.unsent.load(Ordering::Acquire) == 0 {
            let mut connection = self.inner.clone();
            // Boxed: the future of a waiter stays small.
            Either::Left(Box::pin(
                async move { connection.send_packed_command(&command.cmd).await },
            ))
        } else {
            let (reply, answered) = oneshot::channel();
            self.unsent.fetch_add(1, Ordering::AcqRel);
            // Without the task there is no reply, which the receiver notices.
            let _ = self.calls.send(QueuedCommand { command, reply });
            // The task has ended with its runtime, and so has the connection.
            let closed = |_| Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
            Either::Right(answered.unwrap_or_else(closed))
        };
        async move {
            let _in_flight = in_flight;
            sent.await
        }
    }

    /// Sends a command, and a second one with it, after an ASKING if `asking`: that applies to the
    /// next command only. Returns their replies.
    pub(crate) async fn send_pair(
        &self,
        asking: bool,
        command: Command,
        second: Option<Cmd>,
    ) -> RedisResult<[Value; 2]> {
        let mut commands = Pipeline::with_capacity(3);
        if asking {
            commands.cmd("ASKING");
        }
        commands.add_command(command.cmd);
        let count = 1 + usize::from(second.is_some());
        if let Some(second) = second {
            commands.add_command(second);
        }
        let mut connection = self.inner.clone();
        let sent = connection.send_packed_commands(&commands, usize::from(asking), count);
        let mut replies = sent.await?.into_iter();
        Ok([(); 2].map(|()| replies.next().unwrap_or(Value::Nil)))
    }

    pub(crate) fn answered(&self) {
        // Most calls are answered. A store for each of them would invalidate the cache of other
        // threads.
        if self.unanswered.load(Ordering::Relaxed) != 0 {
            self.unanswered.store(0, Ordering::Relaxed);
        }
    }

    /// Whether another runtime drives it than that of the caller.
    pub(crate) fn is_driven_elsewhere(&self) -> bool {
        self.runtime != here()
    }

    /// Counts a call without an answer; returns the number of such calls in a row.
    pub(crate) fn count_unanswered(&self) -> u32 {
        self.unanswered.fetch_add(1, Ordering::Relaxed) + 1
    }
}

async fn send_all(
    connection: MultiplexedConnection,
    mut called: mpsc::UnboundedReceiver<QueuedCommand>,
    unsent: Arc<AtomicUsize>,
    by_slot: bool,
) {
    let mut batches = JoinSet::new();
    let mut calls = Vec::new();
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
        let mut others = Vec::new();
        let mut mergeable = Vec::<(&'static Script, Vec<QueuedCommand>)>::new();
        for call in calls.drain(..) {
            match call.command.merges.filter(|_| !one_by_one.load(Ordering::Relaxed)) {
                Some(script) => match mergeable.iter_mut().find(|(of, _)| ptr::eq(*of, script)) {
                    Some((_, calls)) => calls.push(call),
                    None => mergeable.push((script, vec![call])),
                },
                None => others.push(call),
            }
        }
        // Merged and single calls first: a release may be followed by a request for its key.
        let mut singles = Vec::new();
        for (script, calls) in mergeable {
            match calls.len() {
                1 => singles.extend(calls),
                _ => {
                    let one_by_one = Arc::clone(&one_by_one);
                    begin(&mut batches, merge(connection.clone(), script, calls, one_by_one));
                }
            }
        }
        singles.extend(others);
        if !singles.is_empty() {
            begin(&mut batches, send(connection.clone(), singles));
        }
        unsent.fetch_sub(begun, Ordering::AcqRel);
        while batches.try_join_next().is_some() {}
    }
}

/// Starts to send a batch. It is sent after those that were begun before.
fn begin(batches: &mut JoinSet<()>, batch: impl Future<Output = ()> + Send + 'static) {
    let mut batch = Box::pin(owned(batch));
    if batch.as_mut().now_or_never().is_none() {
        batches.spawn(batch);
    }
}

/// Sends these commands as one batch, and each reply to its caller.
async fn send(mut connection: MultiplexedConnection, mut calls: Vec<QueuedCommand>) {
    // A dropped caller has its lock released by other means, perhaps before this is sent.
    calls.retain(|call| !call.reply.is_closed());
    if calls.is_empty() {
        return;
    }
    let mut pipeline = Pipeline::with_capacity(calls.len());
    for call in &mut calls {
        pipeline.add_command(mem::take(&mut call.command.cmd));
    }
    match connection.send_packed_commands(&pipeline, 0, calls.len()).await {
        // With a reply missing, none could be assigned to its caller.
        Ok(replies) if replies.len() == calls.len() => {
            for (call, reply) in calls.into_iter().zip(replies) {
                let _ = call.reply.send(Ok(reply));
            }
        }
        Ok(_) => {}
        Err(error) => answer(calls, || Err(error.clone())),
    }
}

/// Merges all of these calls into one call of the script, which spares the server most of the cost.
/// A call that the script skips is sent by itself.
async fn merge(
    mut connection: MultiplexedConnection,
    script: &Script,
    mut calls: Vec<QueuedCommand>,
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
fn answer(calls: Vec<QueuedCommand>, reply: impl Fn() -> RedisResult<Value>) {
    for call in calls {
        let _ = call.reply.send(reply());
    }
}
