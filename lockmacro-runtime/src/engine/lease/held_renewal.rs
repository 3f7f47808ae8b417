//! Renewals of a granted lock: the requests, and the effect of each answer.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::engine::core::inside_runtime;
use crate::engine::lease::held::Held;
use crate::engine::lease::renewals::Renewable;
use crate::protocol::request::Request;
use crate::store::dispatch::Renewing;
use crate::value::error::LockError;
use crate::value::random;
use crate::value::time::Moment;

impl Held {
    /// Renews the lease for `ttl` from now on, on the caller's runtime.
    pub(crate) async fn extend(&self, ttl: Duration) -> Result<(), LockError> {
        self.remaining()?;
        inside_runtime()?;
        let sent = Moment::now();
        let ttl = self.lease().extension(ttl, sent);
        self.request().renewed_until(sent.after(ttl));
        let extension = self.tenure_state.extends(sent.after(ttl));
        // Checked after the renewal counts as in flight, as the lock may be passed on meanwhile.
        self.remaining()?;
        let how = Renewing::Acknowledged(self.request().ttl / 3);
        let held = self.manager().store().renew(self.request(), ttl, how).await?;
        extension.answered();
        if held {
            self.lease().extended(sent, ttl);
        }
        self.answered(held, sent, ttl);
        self.remaining().map(drop).map_err(LockError::from)
    }
}

impl Renewable for Held {
    fn request(&self) -> &Request {
        self.acquisition.request()
    }

    fn wants_renewal(&self) -> bool {
        self.lease().wants_renewal()
    }

    fn keeps(&self, now: Moment) -> Option<Duration> {
        self.lease().keeps(now)
    }

    fn allowed(&self, ttl: Duration) -> Duration {
        self.lease().allowed(ttl, Moment::now())
    }

    fn sends(&self, kept_until: Moment) {
        self.tenure_state.sends(kept_until);
    }

    fn answered(&self, held: bool, sent: Moment, ttl: Duration) -> Option<Moment> {
        if held {
            // A confirmation has no ttl: it lasts no longer than the rest of the lease.
            let kept = ttl.max(self.tenure_state.kept_until().since(sent));
            self.tenure_state.confirmed(sent, Moment::now().after(kept));
        }
        let next = {
            let mut lease = self.lease();
            if held {
                self.halved.store(false, Ordering::Release);
                let renewed = lease.renewed(sent, ttl, Moment::now());
                renewed.ok().and_then(|_| lease.first_try(sent, random::fraction()))
            } else {
                // A lease that had ended before is reported as expired, not as taken.
                let _ = lease.remaining(Moment::now());
                lease.taken();
                // Marked first: once the renewal counts as answered, the lock may be passed on.
                self.tenure_state.answered();
                None
            }
        };
        // Reports a loss at once, however long the body runs.
        let _ = self.remaining();
        self.changed.notify_waiters();
        next
    }

    fn unanswered(&self) -> Option<Moment> {
        self.tenure_state.unanswered(Moment::now());
        if self.remaining().is_err() {
            self.changed.notify_waiters();
            return None;
        }
        Some(self.lease().next_try(Moment::now()))
    }

    fn is_halved(&self) -> Option<Duration> {
        let left = self.remaining().ok().filter(|left| *left <= self.request().ttl / 2)?;
        (!self.halved.swap(true, Ordering::AcqRel)).then_some(left)
    }
}
