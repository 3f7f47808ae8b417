//! Callers that do not wait, while their server is down: one probe asks for all of them whether it
//! is back, and otherwise they fail at once.

use super::store::Redis;
use crate::protocol::request::Request;
use crate::store::redis::topology::route::Topology;
use crate::store::remote::health::Silence;
use crate::store::remote::server::RETRY_AFTER;
use crate::sys::time::Instant;
use crate::value::error::{LockError, UnavailableReason};

impl Redis {
    /// Refuses a request whose server is down and not back yet. Nothing is sent for it, so nothing
    /// of it has to be released. The caller waits for the probe until then.
    pub(super) async fn refuse_down(
        &self,
        request: &Request,
        until: Instant,
    ) -> Result<(), LockError> {
        if let Topology::Cluster(cluster) = &self.nodes {
            // Another node may have taken over. Without an answer, the known ones are asked.
            drop(cluster.refresh(until).await);
        }
        for node in self.nodes.nodes_of(request.ask.keys()) {
            if !node.health().is_silent() || node.is_back(until).await {
                continue;
            }
            let Some(Silence { reason, lasts, cause }) = node.health().silence() else { continue };
            let server = Some(node.server().into());
            let retry_after = Some(RETRY_AFTER);
            let since = format!("no answer for {lasts:.1?}");
            let (reason, detail) = match &self.nodes {
                Topology::One(_) => (reason, since),
                Topology::Cluster(_) => {
                    (UnavailableReason::ClusterDown, format!("{reason}: {since}"))
                }
            };
            return Err(LockError::Unavailable {
                reason,
                detail,
                server,
                retry_after,
                nodes: Box::default(),
                cause,
            });
        }
        Ok(())
    }
}
