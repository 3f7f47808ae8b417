//! Locks that count only when replicas have acknowledged them.

use crate::protocol::answer::{Answer, Failed, Grant, StoreFuture};
use crate::protocol::lease::{end_of, late, too_slow};
use crate::protocol::request::Request;
use crate::store::backend::RenewKind;
use crate::store::handle::Store;
use crate::sys::time::Moment;
use crate::value::applied::Applied;
use crate::value::error::{LockError, UnavailableReason};

impl Store {
    /// Waits until replicas have acknowledged a granted lock. Its whole ttl counts from then on. A
    /// lock that too few replicas have acknowledged is released.
    pub(super) fn acknowledged<'a>(
        &'a self,
        request: &'a Request,
        grant: Grant,
    ) -> StoreFuture<'a, Result<Answer, Failed>> {
        // No request from here on acquires: if the caller drops this future, one release is enough.
        request.token.set_applied(grant.earlier.and(Applied::Yes));
        Box::pin(async move {
            let sent = Moment::now();
            let ttl = request.ask.ttl;
            let within = end_of(grant.sent, grant.ttl).since(sent);
            let how = RenewKind::Acknowledged { within, left: within };
            let error = match self.renew(request, ttl, how).await {
                Ok(true) if !late(sent, ttl, Moment::now()) => {
                    return Ok(Answer::Granted(Grant { sent, ttl, ..grant }));
                }
                Ok(true) => self.too_slow(request),
                // Another server has replaced the one that granted the lock.
                Ok(false) => {
                    let detail = "it does not know the lock that was granted";
                    let server = self.backend.address(request);
                    let error =
                        LockError::unavailable_at(server, UnavailableReason::Replaced, detail);
                    let failed = Failed { error, applied: Applied::Unknown };
                    return Ok(Answer::Stale(Box::new(Err(failed))));
                }
                Err(error) => error,
            };
            let short = error.is_of_replicas();
            let released = short && self.release(request).await.is_ok();
            let applied = if released { Applied::No } else { Applied::Yes };
            Err(Failed { error, applied: grant.earlier.and(applied) })
        })
    }

    /// The error of a lock that was granted after its lease had ended.
    pub(super) fn too_slow(&self, request: &Request) -> LockError {
        let server = self.backend.address(request);
        let detail = too_slow(request.ask.ttl);
        LockError::unavailable_at(server, UnavailableReason::TooSlow, detail)
    }
}
