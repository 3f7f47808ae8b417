//! Seeing to it that grants are heard.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::store::redis::client::budget::Budget;
use crate::store::redis::client::connect::SUBSCRIBE_RETRY;
use crate::store::redis::client::connection::{Connection, Delivery};
use crate::store::redis::client::error::{CallError, Transient};
use crate::store::redis::client::node::{Inner, Node};
use crate::store::redis::client::subscriptions::Subscriptions;

/// Time for which the channel of a slot is kept without waiters there.
const CHANNEL_IDLE_MAX: Duration = Duration::from_secs(30);

impl Node {
    /// Sees to it that grants can be heard, in a cluster those in `slot`; tells whether they can.
    pub(crate) async fn listen(&self, slot: u16, budget: Budget) -> Result<bool, CallError> {
        // What is heard where a slot is on its way to may be ended when it has come.
        if self.is_asking() {
            return Ok(false);
        }
        self.inner.connector.receive();
        loop {
            let live = self.connect(budget.until).await?;
            match live.delivery() {
                Delivery::Resp3 => {
                    let subscribing = match live.channels.receives(slot, self.inner.timeout) {
                        Ok(received) => return Ok(received),
                        Err(subscribing) => subscribing,
                    };
                    let work = || {
                        let (node, live) = (self.clone(), Arc::clone(&live));
                        async move { node.subscribe(live, slot).await }
                    };
                    let late = || CallError::Transient(Transient::timeout("subscribing", false));
                    let timeout = || Err(late().at(|| self.server()));
                    let subscribed = subscribing.run(work, budget.until);
                    return Box::pin(subscribed).await.unwrap_or_else(timeout);
                }
                Delivery::Resp2 => return Ok(true),
                Delivery::Refused => return Ok(false),
                Delivery::Failed(at) if at.elapsed() < SUBSCRIBE_RETRY => return Ok(false),
                // Whoever has sent something by the old one still gets the answer by it.
                // Nor is it known whether that would have been answered, by the same server.
                Delivery::NotAsked | Delivery::Failed(_) => self.discard(&live),
            }
        }
    }

    /// Has the grants of a slot come by this connection, if the user may listen to the channel and
    /// send to it: who hands a lock over is asked whether somebody heard it.
    async fn subscribe(&self, live: Arc<Connection>, slot: u16) -> Result<bool, CallError> {
        let timeout = self.inner.timeout;
        let channel = self.sink().channel(slot);
        let (mut subscribe, mut probe) = (redis::cmd("SSUBSCRIBE"), redis::cmd("SPUBLISH"));
        subscribe.arg(&channel);
        probe.arg(&channel).arg("");
        for command in [subscribe, probe] {
            match self.send(&live, command, Budget::new(timeout, timeout)).await {
                Ok(_) => {}
                // Also a server before Redis 7, which does not know the command.
                Err(CallError::Final(_)) => {
                    live.channels.refused();
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        if live.channels.opened(slot) {
            let (node, channels) = (Arc::downgrade(&self.inner), Arc::downgrade(&live.channels));
            tokio::spawn(replace_idle_channels(node, channels));
        }
        Ok(true)
    }
}

/// Gives up channels that nobody waits at any more, as long as the connection is in use.
///
/// An SUNSUBSCRIBE would do, if its reply could be told from a subscription that the server ends by
/// itself. So another connection takes the place of the first, and hears before that one goes.
fn replace_idle_channels(
    node: Weak<Inner>,
    channels: Weak<Subscriptions>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    // Boxed, because the channels of the next connection are tidied up in the same way.
    Box::pin(async move {
        loop {
            sleep(CHANNEL_IDLE_MAX).await;
            let (Some(inner), Some(channels)) = (node.upgrade(), channels.upgrade()) else {
                return;
            };
            let node = Node::of(inner);
            let Some(live) = node.in_use().filter(|live| live.channels.is(&channels)) else {
                return;
            };
            if let Some(wanted) = channels.wanted(CHANNEL_IDLE_MAX)
                && let Ok(Some(next)) = timeout(node.inner.timeout, node.successor(wanted)).await
                && node.replace(&live, next)
            {
                // What the old one has not passed on yet is lost.
                channels.alarm();
                return;
            }
        }
    })
}

impl Node {
    /// A new connection that hears what is wanted.
    async fn successor(&self, wanted: Vec<u16>) -> Option<Arc<Connection>> {
        // Where the last one leads may have been another server for a while.
        self.changes().broken();
        let next = Arc::new(self.inner.connector.open().await.ok()?);
        for slot in wanted {
            if next.channels.receives(slot, self.inner.timeout).is_err()
                && !matches!(self.subscribe(Arc::clone(&next), slot).await, Ok(true))
            {
                return None;
            }
        }
        Some(next)
    }
}
