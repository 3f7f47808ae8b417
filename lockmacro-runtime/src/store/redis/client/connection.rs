//! A connection to one server, and how grants arrive by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio::time::Instant;

use crate::store::redis::client::pipeline::{Batcher, Command};
use crate::store::redis::client::resp2::Resp2Subscription;
use crate::store::redis::client::subscriptions::Subscriptions;

/// Whether grants come by a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// Nobody has waited yet, or what they came by has ended.
    NotAsked,
    Resp3,
    /// By a second connection: the server does not speak RESP3.
    Resp2,
    /// The user may not use the channel.
    Refused,
    /// It could not be had at that time.
    Failed(Instant),
}

pub(crate) struct Connection {
    pub(crate) inner: MultiplexedConnection,
    batcher: Batcher,
    delivery: Delivery,
    /// Which place it leads to, see [`Failover`].
    pub(crate) generation: u64,
    pub(crate) channels: Arc<Subscriptions>,
    /// Is given up with the connection.
    pub(crate) resp2: Option<Arc<Resp2Subscription>>,
    /// Calls in a row that were not answered.
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
        Self { inner, batcher, delivery, generation: 0, channels, resp2: None, unanswered }
    }

    pub(crate) fn delivery(&self) -> Delivery {
        match &self.resp2 {
            Some(resp2) if !resp2.is_open() => Delivery::NotAsked,
            _ => self.delivery,
        }
    }

    /// Sends a command.
    pub(crate) fn send(&self, command: Command) -> impl Future<Output = RedisResult<Value>> + Send {
        self.batcher.send(command)
    }

    /// Sends a command after an ASKING, which is for the next command only.
    pub(crate) async fn asking(&self, command: Cmd) -> RedisResult<Value> {
        let mut both = redis::Pipeline::with_capacity(2);
        both.cmd("ASKING").add_command(command);
        let replies = self.inner.clone().send_packed_commands(&both, 1, 1).await?;
        Ok(replies.into_iter().next_back().unwrap_or(Value::Nil))
    }

    pub(crate) fn answered(&self) {
        // Mostly it is, and then no other thread is to be made to look again.
        if self.unanswered.load(Ordering::Relaxed) != 0 {
            self.unanswered.store(0, Ordering::Relaxed);
        }
    }

    /// Takes note of a call that was not answered; tells how many there were in a row.
    pub(crate) fn count_unanswered(&self) -> u32 {
        self.unanswered.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}
