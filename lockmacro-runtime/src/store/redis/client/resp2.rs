//! A second connection that grants come by, for servers that do not speak RESP3. Here a grant can
//! be heard before the answer to the question that it belongs to; the waiter has its place before it
//! asks, and reads no news before the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use redis::{Client, RedisError};
use tokio::task::JoinSet;

use crate::store::redis::client::subscriptions::Subscriptions;

/// Passes grants on until it is dropped, its connection ends, or its runtime does.
pub(crate) struct Resp2Subscription {
    open: Arc<AtomicBool>,
    /// Ends when this is dropped.
    _task: JoinSet<()>,
}

impl Resp2Subscription {
    /// Listens to the one channel, which the server has confirmed when this returns.
    pub(crate) async fn open(
        client: &Client,
        channels: &Arc<Subscriptions>,
        channel: &str,
    ) -> Result<Self, RedisError> {
        let (mut sink, mut messages) = client.get_async_pubsub().await?.split();
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

/// However the task ends, everybody asks again, and finds that the ear is closed.
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
