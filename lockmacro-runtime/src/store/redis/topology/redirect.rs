//! The route of a command to the node of its slot, with redirects.
//!
//! By the specification of Redis Cluster a MOVED names the node of a slot for good, and an ASK for
//! one command only. A redirected command was not applied.

use crate::store::redis::client::budget::Budget;
use crate::store::redis::client::error::CallError;
use crate::store::redis::client::node::Node;
use crate::store::redis::topology::cluster::{Cluster, down};
use crate::value::time::Instant;
use crate::value::unavailability::Unavailability;

/// Most redirects of one command.
const REDIRECTIONS: u32 = 8;

/// The route of one command, until a node accepts it.
struct Route<'a> {
    cluster: &'a Cluster,
    slot: u16,
    node: Node,
    remaining: u32,
    until: Instant,
}

impl Cluster {
    /// Sends a call by `send` to the node of a slot, and to the next node for as long as the call
    /// is redirected.
    pub(crate) async fn route<T, F>(
        &self,
        slot: u16,
        budget: Budget,
        mut send: impl FnMut(Node) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        let mut route = self.route_to(slot, budget).await?;
        loop {
            let reply = send(route.node.clone()).await;
            if let Some(reply) = route.follow(reply).await {
                return reply;
            }
        }
    }

    /// The route to the node of a slot.
    async fn route_to(&self, slot: u16, budget: Budget) -> Result<Route<'_>, CallError> {
        self.ready(budget.until).await?;
        let mut node = self.map().node_of(slot);
        if node.is_none() {
            self.refresh(budget.until).await?;
            node = self.map().node_of(slot);
        }
        let node = node.ok_or_else(|| down("no node has the slot").at(|| self.source()))?;
        Ok(Route { cluster: self, slot, node, remaining: REDIRECTIONS, until: budget.until })
    }
}

impl Route<'_> {
    /// The final reply to the command, unless the command has to be sent to another node.
    async fn follow<T>(&mut self, reply: Result<T, CallError>) -> Option<Result<T, CallError>> {
        let mut transient = match reply {
            Err(CallError::Redirect(to)) => {
                if self.remaining == 0 {
                    let error = down("its nodes redirect the command in a circle");
                    return Some(Err(error.at(|| self.node.server())));
                }
                self.remaining -= 1;
                return match self.cluster.redirected(self.slot, &to, &self.node) {
                    Ok(node) => {
                        self.node = node;
                        None
                    }
                    Err(error) => Some(Err(error)),
                };
            }
            Err(CallError::Transient(transient)) => transient,
            Err(CallError::Split(_)) => {
                self.cluster.refresh_soon();
                return Some(reply);
            }
            reply => return Some(reply),
        };
        if transient.replace {
            // The slot may have a new primary, which a retry at once then finds.
            let _ = Box::pin(self.cluster.refresh(self.until)).await;
        } else {
            self.cluster.refresh_soon();
        }
        if transient.reason == Unavailability::Refused {
            transient.reason = Unavailability::ClusterDown;
        }
        Some(Err(CallError::Transient(transient)))
    }
}
