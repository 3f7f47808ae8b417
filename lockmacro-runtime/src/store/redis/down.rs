//! Callers that do not wait, while their server is down: one probe asks for all of them whether it
//! is back, and otherwise they fail at once.

use std::time::Duration;

use super::store::Redis;
use crate::protocol::request::Request;
use crate::store::backend::Backend;
use crate::store::redis::topology::route::Topology;
use crate::store::remote::health::Silence;
use crate::store::remote::server::RETRY_AFTER;
use crate::sys::time::Instant;
use crate::value::error::{LockError, UnavailableReason};

/// How long a caller waits for the probe, besides some round trips: to connect, to log in, and for
/// the answer.
const LONGEST: Duration = Duration::from_millis(40);
const ROUND_TRIPS: u32 = 5;

impl Redis {
    /// Refuses a request whose server is down and not back yet. Nothing is sent for it, so nothing
    /// of it has to be released.
    pub(super) async fn refuse_down(&self, request: &Request) -> Result<(), LockError> {
        let keys = request.keys();
        let far = self.health(request).round_trip;
        let until = Instant::now() + LONGEST + ROUND_TRIPS * far;
        if let Topology::Cluster(cluster) = &self.nodes {
            // Another node may have taken over. Without an answer, the known ones are asked.
            drop(cluster.refresh(until).await);
        }
        for node in self.nodes.nodes_of(keys) {
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
