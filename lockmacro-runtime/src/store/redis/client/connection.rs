//! One connection to a server, and how grants arrive on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};

use crate::store::redis::client::pipeline::{Batcher, Command};
use crate::store::redis::client::subscriptions::Subscriptions;
use crate::value::time::Instant;

/// How grants arrive on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// As pushes on this connection (RESP3), once it has subscribed.
    Pushed,
    /// They do not: HELLO is refused, as by some proxies.
    Refused,
    /// They do not: the subscription failed at that time.
    Failed(Instant),
}

/// An open connection, shared by all calls.
pub(crate) struct Connection {
    pub(crate) inner: MultiplexedConnection,
    batcher: Batcher,
    pub(crate) delivery: Delivery,
    /// Which server of its address it leads to, see
    /// [`Failover`](crate::store::redis::client::failover::Failover).
    pub(crate) generation: u64,
    pub(crate) channels: Arc<Subscriptions>,
    /// Calls in a row without an answer.
    unanswered: AtomicU32,
}

impl Connection {
    pub(crate) fn new(
        inner: MultiplexedConnection,
        delivery: Delivery,
        channels: Arc<Subscriptions>,
    ) -> Self {
        let (batcher, unanswered) =
            (Batcher::new(inner.clone(), channels.are_of_slots()), AtomicU32::new(0));
        Self { inner, batcher, delivery, generation: 0, channels, unanswered }
    }

    /// Sends a command.
    pub(crate) fn send(&self, command: Command) -> impl Future<Output = RedisResult<Value>> + Send {
        self.batcher.send(command)
    }

    /// Sends a command after an ASKING, which applies to the next command only.
    pub(crate) async fn asking(&self, command: Cmd) -> RedisResult<Value> {
        let mut both = redis::Pipeline::with_capacity(2);
        both.cmd("ASKING").add_command(command);
        let replies = self.inner.clone().send_packed_commands(&both, 1, 1).await?;
        Ok(replies.into_iter().next_back().unwrap_or(Value::Nil))
    }

    pub(crate) fn answered(&self) {
        // Most calls are answered. A store for each of them would invalidate the cache of other
        // threads.
        if self.unanswered.load(Ordering::Relaxed) != 0 {
            self.unanswered.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a call without an answer; returns the number of such calls in a row.
    pub(crate) fn count_unanswered(&self) -> u32 {
        self.unanswered.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}
