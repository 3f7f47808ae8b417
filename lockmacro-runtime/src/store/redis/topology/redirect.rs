//! The way of a command to the node of a slot, which is followed when the slot moves.
//!
//! By the specification of Redis Cluster: MOVED tells for good where a slot is, ASK for the one
//! command only. A command that was refused so was not applied.

use tokio::time::Instant;

use crate::store::redis::client::budget::Patience;
use crate::store::redis::client::error::Trouble;
use crate::store::redis::client::node::Node;
use crate::store::redis::topology::cluster::{Cluster, down};
use crate::value::unavailability::Unavailability;

/// So often one command is sent on to another node.
const REDIRECTIONS: u32 = 8;

/// Where one command goes until a node has taken it.
struct Way<'a> {
    cluster: &'a Cluster,
    slot: u16,
    node: Node,
    left: u32,
    until: Instant,
}

impl Cluster {
    /// Has `send` send a call to the node of a slot, and to the next node for as long as the call is
    /// redirected.
    pub(crate) async fn route<T, F>(
        &self,
        slot: u16,
        patience: Patience,
        mut send: impl FnMut(Node) -> F,
    ) -> Result<T, Trouble>
    where
        F: Future<Output = Result<T, Trouble>>,
    {
        let mut way = self.way(slot, patience).await?;
        loop {
            let reply = send(way.node.clone()).await;
            if let Some(reply) = way.follow(reply).await {
                return reply;
            }
        }
    }

    /// The way to the node of a slot.
    async fn way(&self, slot: u16, patience: Patience) -> Result<Way<'_>, Trouble> {
        self.ready(patience.until).await?;
        let mut node = self.map().node_of(slot);
        if node.is_none() {
            self.learnt(patience.until).await?;
            node = self.map().node_of(slot);
        }
        let node = node.ok_or_else(|| down("no node has the slot").at(|| self.told_by()))?;
        Ok(Way { cluster: self, slot, node, left: REDIRECTIONS, until: patience.until })
    }
}

impl Way<'_> {
    /// The end of the command, unless it is to be sent to another node.
    async fn follow<T>(&mut self, reply: Result<T, Trouble>) -> Option<Result<T, Trouble>> {
        let mut passing = match reply {
            Err(Trouble::Elsewhere(to)) => {
                if self.left == 0 {
                    let trouble = down("its nodes send us from one to the other");
                    return Some(Err(trouble.at(|| self.node.server())));
                }
                self.left -= 1;
                return match self.cluster.redirected(self.slot, &to, &self.node) {
                    Ok(node) => {
                        self.node = node;
                        None
                    }
                    Err(trouble) => Some(Err(trouble)),
                };
            }
            Err(Trouble::Passing(passing)) => passing,
            reply => return Some(reply),
        };
        if passing.replace {
            // The slot may have a new primary, and who asks again at once finds it.
            let _ = Box::pin(self.cluster.learnt(self.until)).await;
        } else {
            self.cluster.learn_soon();
        }
        if passing.reason == Unavailability::Refused {
            passing.reason = Unavailability::ClusterDown;
        }
        Some(Err(Trouble::Passing(passing)))
    }
}
