//! The route of a command to the node of its slot, with redirects.
//!
//! By the specification of Redis Cluster a MOVED names the node of a slot for good, and an ASK for
//! one command only. A redirected command was not applied.

use crate::store::redis::client::budget::Budget;
use crate::store::redis::client::error::CallError;
use crate::store::redis::client::node::Node;
use crate::store::redis::topology::cluster::{Cluster, down};
use crate::value::error::Unavailability;
use crate::value::time::Instant;

/// Most redirects of one command.
const REDIRECTIONS: u32 = 8;

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
        let mut node = self.node_of(slot, budget.until).await?;
        for _ in 0..=REDIRECTIONS {
            match send(node.clone()).await {
                Err(CallError::Redirect(to)) => node = self.redirected(slot, &to, &node)?,
                Err(error) => return Err(self.failed(error, budget.until).await),
                reply => return reply,
            }
        }
        Err(down("its nodes redirect the command in a circle").at(|| node.server()))
    }

    /// The node of a slot.
    async fn node_of(&self, slot: u16, until: Instant) -> Result<Node, CallError> {
        self.ready(until).await?;
        let mut node = self.map().node_of(slot);
        if node.is_none() {
            self.refresh(until).await?;
            node = self.map().node_of(slot);
        }
        node.ok_or_else(|| down("no node has the slot").at(|| self.source()))
    }

    /// Refreshes the slot map after an error that a change of it may explain; returns the error for
    /// the caller.
    async fn failed(&self, error: CallError, until: Instant) -> CallError {
        let mut transient = match error {
            CallError::Transient(transient) => transient,
            CallError::Split(_) => {
                self.refresh_soon();
                return error;
            }
            error => return error,
        };
        if transient.replace {
            // The slot may have a new primary, which a retry at once then finds.
            let _ = Box::pin(self.refresh(until)).await;
        } else {
            self.refresh_soon();
        }
        if transient.reason == Unavailability::Refused {
            transient.reason = Unavailability::ClusterDown;
        }
        CallError::Transient(transient)
    }
}
