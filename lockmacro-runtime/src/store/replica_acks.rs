//! Locks that count only when replicas have acknowledged them.

use std::time::Duration;

use crate::protocol::answer::{Answer, Asked, Failed, Grant};
use crate::protocol::lease::{Lease, Renewal, too_slow};
use crate::protocol::request::Request;
use crate::store::dispatch::Store;
use crate::value::applied::Applied;
use crate::value::error::{LockError, Unavailability};
use crate::value::loss::LossCause;
use crate::value::time::Moment;

impl Store {
    /// Whether a grant counts only when replicas have acknowledged it.
    pub(crate) fn is_replicated(&self) -> bool {
        matches!(self, Store::Redis(redis) if redis.is_replicated())
    }

    /// Renews as [`renew`](Store::renew) does. With replication it fails unless replicas have
    /// acknowledged the renewal. Failed calls are repeated for no longer than `within`.
    pub(crate) fn renew_acknowledged<'a>(
        &'a self,
        request: &'a Request,
        ttl: Duration,
        within: Duration,
    ) -> Asked<'a, Result<bool, LockError>> {
        if self.is_in_parts(request) {
            return self.renew_parts(request, move |store, part| {
                store.renew_acknowledged(part, ttl, within)
            });
        }
        match self {
            Store::Redis(redis) => redis.renew_acknowledged(request, ttl, within),
            Store::Memory(_) | Store::Redlock(_) => self.renew(request, ttl),
        }
    }

    /// Waits until replicas have acknowledged a granted lock. Its whole ttl counts from then on. A
    /// lock that too few replicas have acknowledged is released.
    pub(super) fn acknowledged<'a>(
        &'a self,
        request: &'a Request,
        grant: Grant,
    ) -> Asked<'a, Result<Answer, Failed>> {
        // No request from here on acquires: if the caller drops this future, one release is enough.
        request.set_applied(grant.earlier.and(Applied::Yes));
        Box::pin(async move {
            let (sent, ttl) = (Moment::now(), request.ttl);
            let within = left(grant.sent, grant.ttl).unwrap_or_default();
            let error = match self.renew_acknowledged(request, ttl, within).await {
                Ok(true) if left(sent, ttl).is_ok() => {
                    return Ok(Answer::Granted(Grant { sent, ttl, ..grant }));
                }
                Ok(true) => {
                    let (server, reason) =
                        (self.servers().address(request), Unavailability::TooSlow);
                    LockError::unavailable_at(server, reason, too_slow(ttl))
                }
                // Another server has replaced the one that granted the lock.
                Ok(false) => {
                    let (reason, detail) =
                        (Unavailability::Replaced, "it does not know the lock that was granted");
                    let server = self.servers().address(request);
                    let error = LockError::unavailable_at(server, reason, detail);
                    let failed = Failed { error, applied: Applied::Unknown };
                    return Ok(Answer::Lost(Box::new(Err(failed))));
                }
                Err(error) => error,
            };
            let short = matches!(error, LockError::InsufficientReplicas { .. });
            let released = short && self.release(request).await.is_ok();
            let applied = if released { Applied::No } else { Applied::Yes };
            Err(Failed { error, applied: grant.earlier.and(applied) })
        })
    }
}

/// How long a lease may still be relied on.
fn left(sent: Moment, ttl: Duration) -> Result<Duration, LossCause> {
    Lease::new(sent, ttl, Renewal::Off).remaining(Moment::now())
}
