//! Seeing to it that grants are heard.

use std::pin::Pin;
use std::sync::{Arc, Weak};

use tokio::time::{sleep, timeout};

use crate::store::redis::client::budget::Patience;
use crate::store::redis::client::connect::{Connection, Hearing, KEPT};
use crate::store::redis::client::error::{Passing, Trouble};
use crate::store::redis::client::node::{Inner, Node};
use crate::store::redis::client::subscriptions::Subscriptions;

impl Node {
    /// Sees to it that grants can be heard, in a cluster those in `slot`; tells whether they can.
    pub(crate) async fn listen(&self, slot: u16, patience: Patience) -> Result<bool, Trouble> {
        // What is heard where a slot is on its way to may be ended when it has come.
        if self.is_asking() {
            return Ok(false);
        }
        self.inner.connector.hear();
        loop {
            let live = self.connect(patience.until).await?;
            match live.hearing() {
                Hearing::Yes => {
                    let joining = match live.channels.hears(slot, self.inner.timeout) {
                        Ok(heard) => return Ok(heard),
                        Err(joining) => joining,
                    };
                    let work = || {
                        let (node, live) = (self.clone(), Arc::clone(&live));
                        async move { node.subscribe(live, slot).await }
                    };
                    let late = || Trouble::Passing(Passing::timeout("subscribing", false));
                    let timeout = || Err(late().at(|| self.server()));
                    let joined = joining.done(work, patience.until);
                    return Box::pin(joined).await.unwrap_or_else(timeout);
                }
                Hearing::Apart => return Ok(true),
                Hearing::Refused => return Ok(false),
                Hearing::Failed(at) if at.elapsed() < KEPT => return Ok(false),
                // Whoever has sent something by the old one still gets the answer by it.
                // Nor is it known whether that would have been answered, by the same server.
                Hearing::NotAsked | Hearing::Failed(_) => self.discard(&live),
            }
        }
    }

    /// Has the grants of a slot come by this connection, if the user may listen to the channel and
    /// send to it: who hands a lock over is asked whether somebody heard it.
    async fn subscribe(&self, live: Arc<Connection>, slot: u16) -> Result<bool, Trouble> {
        let timeout = self.inner.timeout;
        let channel = self.sink().channel(slot);
        let (mut subscribe, mut knock) = (redis::cmd("SSUBSCRIBE"), redis::cmd("SPUBLISH"));
        subscribe.arg(&channel);
        knock.arg(&channel).arg("");
        for command in [subscribe, knock] {
            match self.send(&live, command, Patience::new(timeout, timeout)).await {
                Ok(_) => {}
                // Also a server before Redis 7, which does not know the command.
                Err(Trouble::Final(_)) => {
                    live.channels.refused();
                    return Ok(false);
                }
                Err(trouble) => return Err(trouble),
            }
        }
        if live.channels.opened(slot) {
            let (node, channels) = (Arc::downgrade(&self.inner), Arc::downgrade(&live.channels));
            tokio::spawn(tidy(node, channels));
        }
        Ok(true)
    }
}

/// Gives up channels that nobody waits at any more, as long as the connection is in use.
///
/// An SUNSUBSCRIBE would do, if its reply could be told from a subscription that the server ends by
/// itself. So another connection takes the place of the first, and hears before that one goes.
fn tidy(
    node: Weak<Inner>,
    channels: Weak<Subscriptions>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    // Boxed, because the channels of the next connection are tidied up in the same way.
    Box::pin(async move {
        loop {
            sleep(KEPT).await;
            let (Some(inner), Some(channels)) = (node.upgrade(), channels.upgrade()) else {
                return;
            };
            let node = Node::of(inner);
            let Some(live) = node.in_use().filter(|live| live.channels.is(&channels)) else {
                return;
            };
            if let Some(wanted) = channels.wanted(KEPT)
                && let Ok(Some(next)) = timeout(node.inner.timeout, node.heir(wanted)).await
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
    async fn heir(&self, wanted: Vec<u16>) -> Option<Arc<Connection>> {
        // Where the last one leads may have been another server for a while.
        self.changes().broke();
        let next = Arc::new(self.inner.connector.open().await.ok()?);
        for slot in wanted {
            if next.channels.hears(slot, self.inner.timeout).is_err()
                && !matches!(self.subscribe(Arc::clone(&next), slot).await, Ok(true))
            {
                return None;
            }
        }
        Some(next)
    }
}
