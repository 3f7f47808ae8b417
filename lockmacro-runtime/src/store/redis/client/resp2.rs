//! A second connection that receives grants, for servers that do not speak RESP3.
//!
//! A grant can arrive here before the reply to the request that it belongs to. That is safe: the
//! waiter registers before it asks, and reads grants only after the reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use redis::{Client, RedisError};

use crate::store::redis::client::stream;
use crate::store::redis::client::subscriptions::Subscriptions;
use crate::value::task::JoinSet;

/// Receives grants until it is dropped, or its connection or its runtime ends.
pub(crate) struct Resp2Subscription {
    open: Arc<AtomicBool>,
    /// Ends when this is dropped.
    _task: JoinSet<()>,
}

impl Resp2Subscription {
    /// Subscribes to the one channel; the server has confirmed the subscription when this returns.
    pub(crate) async fn open(
        client: &Client,
        channels: &Arc<Subscriptions>,
        channel: &str,
    ) -> Result<Self, RedisError> {
        let (mut sink, mut messages) = stream::subscription(client).await?.split();
        sink.subscribe(channel).await?;
        let open = Arc::new(AtomicBool::new(true));
        let open_while = OpenWhile { open: Arc::clone(&open), channels: Arc::clone(channels) };
        let mut task = JoinSet::new();
        task.spawn(async move {
            while let Some(message) = messages.next().await {
                open_while.channels.receive(message.get_payload_bytes());
            }
        });
        Ok(Self { open, _task: task })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }
}

/// Marks the subscription as closed and makes all waiters ask again, however the task ends.
struct OpenWhile {
    open: Arc<AtomicBool>,
    channels: Arc<Subscriptions>,
}

impl Drop for OpenWhile {
    fn drop(&mut self) {
        self.open.store(false, Ordering::Release);
        self.channels.alarm();
    }
}
