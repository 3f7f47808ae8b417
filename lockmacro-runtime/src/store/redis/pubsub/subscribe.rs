//! Subscribing to the channels of grants.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::store::redis::client::budget::Budget;
use crate::store::redis::client::connection::{Connection, Delivery};
use crate::store::redis::client::error::CallError;
use crate::store::redis::client::node::{Inner, Node};
use crate::store::redis::client::subscriptions::Subscriptions;
use crate::value::applied::Applied;
use crate::value::task::spawn;

/// Delay before a subscription that failed is tried again.
const SUBSCRIBE_RETRY: Duration = Duration::from_secs(30);
/// Longest time for which the channel of a slot is kept without waiters.
const CHANNEL_IDLE_MAX: Duration = Duration::from_secs(30);

impl Node {
    /// Subscribes to the channel of grants, in a cluster to that of `slot`; returns whether grants
    /// can be received.
    pub(crate) async fn listen(&self, slot: u16, budget: Budget) -> Result<bool, CallError> {
        // While a slot is being moved to this node, a subscription may end with the move.
        if self.is_asking() {
            return Ok(false);
        }
        self.inner.connector.receive();
        let received = self.subscribed(slot, budget).await?;
        if !received {
            self.changes().polls(|| self.server());
        }
        Ok(received)
    }

    async fn subscribed(&self, slot: u16, budget: Budget) -> Result<bool, CallError> {
        loop {
            let live = self.connect(budget.until).await?;
            match live.delivery {
                Delivery::Pushed => {
                    let subscribing = match live.channels.receives(slot, self.inner.timeout) {
                        Ok(received) => return Ok(received),
                        Err(subscribing) => subscribing,
                    };
                    let work = || {
                        let (node, live) = (self.clone(), Arc::clone(&live));
                        async move { node.subscribe(live, slot).await }
                    };
                    let late = || CallError::timeout("subscribing", Applied::No);
                    let timeout = || Err(late().at(|| self.server()));
                    let subscribed = subscribing.run(work, budget.until);
                    return Box::pin(subscribed).await.unwrap_or_else(timeout);
                }
                Delivery::Refused => return Ok(false),
                Delivery::Failed(at) if at.elapsed() < SUBSCRIBE_RETRY => return Ok(false),
                // Commands in flight on the old connection still get their replies there. It counts
                // as broken, because the new one may lead to another server.
                Delivery::NotAsked | Delivery::Failed(_) => self.discard(&live),
            }
        }
    }

    /// Subscribes to the channel of a slot, and checks that the user may publish there, too: a
    /// release looks for subscribers before it hands the lock off.
    async fn subscribe(&self, live: Arc<Connection>, slot: u16) -> Result<bool, CallError> {
        let timeout = self.inner.timeout;
        let channel = self.sink().channel(slot);
        let (mut subscribe, mut probe) = (redis::cmd("SSUBSCRIBE"), redis::cmd("SPUBLISH"));
        subscribe.arg(&channel);
        probe.arg(&channel).arg("");
        for command in [subscribe, probe] {
            match self.send(&live, command, Budget::new(timeout, timeout)).await {
                Ok(_) => {}
                // Also on a server before Redis 7, which does not know the command.
                Err(CallError::Final(_)) => {
                    live.channels.refused();
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        if live.channels.opened(slot) {
            let (node, channels) = (Arc::downgrade(&self.inner), Arc::downgrade(&live.channels));
            spawn(replace_idle_channels(node, channels));
        }
        Ok(true)
    }
}

/// Drops the channels without waiters, for as long as the connection is in use.
///
/// The reply to an SUNSUBSCRIBE looks like the end of a subscription by the server. Therefore a new
/// connection replaces the old one, and subscribes before the old one is closed.
fn replace_idle_channels(
    node: Weak<Inner>,
    channels: Weak<Subscriptions>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    // Boxed, because it starts itself again for the next connection.
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
                // Grants that the old connection has not delivered are lost.
                channels.alarm();
                return;
            }
        }
    })
}

impl Node {
    /// A new connection with these channels.
    async fn successor(&self, wanted: Vec<u16>) -> Option<Arc<Connection>> {
        // The old connection may have led to another server meanwhile.
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
