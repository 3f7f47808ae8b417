//! Subscribing to the channels of grants.

use std::sync::Arc;
use std::time::Duration;

use crate::store::redis::client::connection::Connection;
use crate::store::redis::client::node::Node;
use crate::store::remote::budget::Budget;
use crate::store::remote::error::{RemoteError, Transient};
use crate::value::applied::Applied;

/// Time without a waiter after which the channel of a slot is idle.
const CHANNEL_IDLE: Duration = Duration::from_secs(30);
/// Most idle channels of a connection.
const IDLE_CHANNELS_MAX: usize = 256;

impl Node {
    /// Subscribes to the channel of grants, in a cluster to that of `slot`; returns whether grants
    /// can be received.
    pub(crate) async fn listen(&self, slot: u16, budget: Budget) -> Result<bool, RemoteError> {
        // While a slot is being moved to this node, a subscription may end with the move.
        if self.asking {
            return Ok(false);
        }
        let connector = self.connector();
        // One server has one channel.
        let slot = if connector.grants.by_slot { slot } else { 0 };
        let received = match self.subscribed(slot, budget).await {
            // Nothing was sent for the caller yet.
            Err(RemoteError::Transient(transient)) => {
                return Err(RemoteError::Transient(Transient {
                    applied: Applied::No,
                    ..transient
                }));
            }
            subscribed => subscribed?,
        };
        if !received {
            connector.monitor.note_polling(|| self.server());
        }
        Ok(received)
    }

    async fn subscribed(&self, slot: u16, budget: Budget) -> Result<bool, RemoteError> {
        loop {
            let live = self.connect(budget.until).await?;
            let subscribing = match live.channels.receives(slot, self.connector().timeout) {
                Ok(received) => return Ok(received),
                Err(subscribing) => subscribing,
            };
            // The reply to an SUNSUBSCRIBE would look like the end of a subscription by the server.
            // Therefore a new connection replaces the one with idle channels.
            if live.channels.count_idle(CHANNEL_IDLE) > IDLE_CHANNELS_MAX {
                self.discard(&live);
                continue;
            }
            let work = || self.clone().subscribe(Arc::clone(&live), slot);
            let late = || RemoteError::timeout("subscribing", Applied::No);
            let timeout = || Err(late().at(|| self.server()));
            let subscribed = subscribing.run(work, budget.until);
            return Box::pin(subscribed).await.unwrap_or_else(timeout);
        }
    }

    /// Subscribes to the channel of a slot, and checks that the user may publish there, too: a
    /// release looks for subscribers before it hands the lock off.
    async fn subscribe(self, live: Arc<Connection>, slot: u16) -> Result<bool, RemoteError> {
        let timeout = self.connector().timeout;
        let grants = &live.channels.grants;
        let channel = grants.channel(slot);
        let (subscribe, publish) =
            if grants.by_slot { ("SSUBSCRIBE", "SPUBLISH") } else { ("SUBSCRIBE", "PUBLISH") };
        let mut subscribe = redis::cmd(subscribe);
        let mut probe = redis::cmd(publish);
        subscribe.arg(&channel);
        probe.arg(&channel).arg("");
        for command in [subscribe, probe] {
            match self.send(&live, command, Budget::new(timeout, timeout)).await {
                Ok(_) => {}
                // Also on a server before Redis 7, which does not know the command.
                Err(RemoteError::Final(_)) => {
                    live.channels.refused();
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        live.channels.opened(slot);
        Ok(true)
    }
}
