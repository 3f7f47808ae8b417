//! Renewals of a granted lock: the requests, and the effect of each answer.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::Held;
use crate::engine::core::inside_runtime;
use crate::engine::telemetry;
use crate::engine::thread::timers::{Over, Timed};
use crate::store::backend::RenewKind;
use crate::store::handle::Store;
use crate::sys::backoff::Backoff;
use crate::sys::random;
use crate::sys::time::Moment;
use crate::value::error::LockError;

/// First pause before a confirmation without an answer is sent again. Each pause is twice as long
/// as the one before, up to eight times this.
const CONFIRM_AGAIN: Duration = Duration::from_millis(250);

/// First pause before an extension is sent again whose failure may pass, and for how long it is, in
/// times for an answer.
const EXTEND_AGAIN: Duration = Duration::from_millis(10);
const ANSWERS: u32 = 4;

/// A renewal in flight. Dropping this records that the renewal is without an answer.
struct Unanswered<'a>(&'a Held);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.unanswered_at = state.unanswered_at.max(Some(Moment::now()));
        state.in_flight -= 1;
    }
}

impl Held {
    /// Renews the lease for `ttl` from now on, on the caller's runtime.
    pub(crate) async fn extend(&self, ttl: Duration) -> Result<(), LockError> {
        self.check_lease()?;
        inside_runtime()?;
        let sent = Moment::now();
        let ttl = self.state.lock().lease.extension(ttl, sent);
        self.request.renewed_until(sent.after(ttl));
        let unanswered = self.note_sent(sent.after(ttl));
        // Checked after the renewal counts as in flight, as the lock may be passed on meanwhile.
        self.check_lease()?;
        let within = self.request.ttl / 3;
        let until = sent.after(within.min(self.manager.answer_time() * ANSWERS));
        let mut pauses = Backoff::new(EXTEND_AGAIN, EXTEND_AGAIN * 16);
        let held = loop {
            let how = RenewKind::Extended(within);
            match self.manager.store.renew(&self.request, ttl, how).await {
                // The connection may have been closed while nobody used it.
                Err(error) if error.is_transient() && Moment::now() < until => {
                    sleep(pauses.step()).await;
                    self.check_lease()?;
                }
                answer => break answer?,
            }
        };
        if held {
            self.state.lock().lease.extended(sent, ttl);
        }
        mem::forget(unanswered);
        self.answered(held, sent, ttl);
        self.check_lease().map(drop).map_err(LockError::from)
    }

    /// Records that a renewal is about to be sent, which may make the store keep the lock until
    /// `kept_until`.
    fn note_sent(&self, kept_until: Moment) -> Unanswered<'_> {
        let mut state = self.state.lock();
        state.in_flight += 1;
        state.tenure.kept_until = state.tenure.kept_until.max(kept_until);
        Unanswered(self)
    }

    /// Makes a call that must not arrive later than its answer, which tells whether the lock is
    /// held. Without one the lock is not passed on, as the next holder would have the same token.
    #[cfg(feature = "reuse")]
    pub(crate) async fn suspect_until_answered(
        &self,
        call: impl Future<Output = Result<bool, LockError>>,
    ) -> Result<(), LockError> {
        let unanswered = self.note_sent(Moment::at(Duration::ZERO));
        let held = call.await?;
        mem::forget(unanswered);
        if held {
            self.state.lock().in_flight -= 1;
            return Ok(());
        }
        self.answered(false, Moment::now(), Duration::ZERO);
        self.check_lease().map(drop).map_err(LockError::from)
    }

    /// Records an answer of the store: that it has `held` the lock since a renewal for `ttl` that
    /// was sent at `sent`, or that the lock is lost. Returns when to renew next.
    pub(super) fn answered(&self, held: bool, sent: Moment, ttl: Duration) -> Option<Moment> {
        let next = {
            let state = &mut *self.state.lock();
            state.in_flight = state.in_flight.saturating_sub(1);
            let lease = &mut state.lease;
            let tenure = &mut state.tenure;
            if held {
                // A confirmation has no ttl: it lasts no longer than the rest of the lease.
                let kept = Moment::now().after(ttl.max(tenure.kept_until.since(sent)));
                tenure.kept_until = tenure.kept_until.max(kept);
                tenure.sent = tenure.sent.max(sent);
                (state.halved, state.unconfirmed) = (false, 0);
                let renewed = lease.renewed(sent, ttl, Moment::now());
                renewed.ok().and_then(|_| lease.first_try(sent, random::fraction()))
            } else {
                // A lease that had ended before is reported as expired, not as taken.
                let _ = lease.remaining(Moment::now());
                lease.taken();
                None
            }
        };
        // Reports a loss at once, however long the body runs.
        let _ = self.check_lease();
        self.changed.notify_waiters();
        next
    }

    /// Returns when to try again after a renewal, or else a confirmation, without an answer.
    fn next_try(&self, is_renewal: bool, error: &LockError) -> Option<Moment> {
        let Ok(left) = self.check_lease() else {
            self.changed.notify_waiters();
            return None;
        };
        let mut state = self.state.lock();
        if !is_renewal {
            let pause = Backoff::new(CONFIRM_AGAIN, CONFIRM_AGAIN * 8).after(state.unconfirmed);
            state.unconfirmed = state.unconfirmed.saturating_add(1);
            return Some(Moment::now().after(pause));
        }
        let next = state.lease.next_try(Moment::now());
        let is_news = left <= self.request.ttl / 2 && !mem::replace(&mut state.halved, true);
        drop(state);
        if is_news {
            telemetry::half_unrenewed(&self.request, left, error);
        }
        Some(next)
    }
}

impl Timed for Held {
    fn run<'a>(self: Arc<Self>, store: &'a Store, over: &'a Over<'a>) -> BoxFuture<'a, ()> {
        async move {
            let request = &*self.request;
            let sent = Moment::now();
            let (is_renewal, ttl, left) = {
                let lease = &mut self.state.lock().lease;
                let left = lease.remaining(sent).unwrap_or_default();
                if lease.wants_renewal() {
                    (true, Some(lease.allowed(request.ttl, sent)), left)
                } else {
                    (false, lease.keeps(sent), left)
                }
            };
            let Some(ttl) = ttl else { return over(None) };
            let unanswered = self.note_sent(sent.after(ttl));
            // Checked after the renewal counts as in flight: a lock that is passed on now is not
            // renewed for its last holder.
            if self.was_released() {
                return;
            }
            // A new server may have the key without its ttl. A confirmation does not lengthen the
            // client's lease.
            let (how, longer) = if is_renewal {
                (RenewKind::Acknowledged { within: request.ttl / 3, left }, ttl)
            } else {
                (RenewKind::Kept, Duration::ZERO)
            };
            let answer = store.renew(request, ttl, how).await;
            // The answer "not yours" is expected then.
            if self.was_released() {
                return;
            }
            over(match &answer {
                Ok(held) => {
                    mem::forget(unanswered);
                    self.answered(*held, sent, longer)
                }
                Err(error) => {
                    drop(unanswered);
                    self.next_try(is_renewal, error)
                }
            });
            // Last: the code of a subscriber may panic.
            if is_renewal || !matches!(answer, Ok(true)) {
                telemetry::renewed(request, answer.as_ref().copied());
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::core::Core;
    use crate::engine::token::acquisition::Acquisition;
    use crate::protocol::answer::Grant;
    use crate::protocol::request::Request;
    use crate::store::memory::Memory;
    use crate::value::applied::Applied;
    use crate::value::defaults::Defaults;
    use crate::value::token::Token;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    /// A lock that was granted now, for an hour.
    fn held() -> Arc<Held> {
        let store = Store::of(Memory::new());
        let defaults = Defaults::default();
        let core = Core::over(store, None, defaults, Default::default());
        let token = Token::new("test", "", "").unwrap();
        let request = Arc::new(Request::new("order".into(), token, HOUR, Moment::now()));
        let acquisition = Acquisition::new(core.in_flight.join(), core, request, None);
        let now = Moment::now();
        let grant =
            Grant { sent: now, at: now, ttl: HOUR, earlier: Applied::No, fences: Vec::new() };
        Held::new(acquisition, grant, None, None).unwrap().unwrap()
    }

    /// The store has said yes.
    fn answered(renewal: Unanswered<'_>, sent: Moment, ttl: Duration) {
        let held = renewal.0;
        mem::forget(renewal);
        held.answered(true, sent, ttl);
    }

    #[test]
    fn the_end_of_the_ttl_on_the_store_is_known_when_a_renewal_is_sent() {
        let held = held();
        let kept_until = || held.state.lock().tenure.kept_until;
        let sent = Moment::now();
        let first = kept_until();
        let renewal = held.note_sent(sent.after(2 * HOUR));
        assert_eq!(kept_until(), sent.after(2 * HOUR));
        assert!(held.state.lock().is_suspect());
        answered(renewal, sent, 3 * HOUR);
        assert!(kept_until() >= sent.after(3 * HOUR) && first < sent.after(2 * HOUR));
        assert_eq!(held.state.lock().tenure().sent, sent);
        assert!(!held.state.lock().is_suspect());
    }

    #[test]
    fn only_a_renewal_sent_after_the_last_unanswered_one_ends_the_suspicion() {
        let held = held();
        let sends = || (held.note_sent(Moment::now()), Moment::now());
        let (early, sent) = sends();
        let (unanswered, _) = sends();
        drop(unanswered);
        answered(early, sent, HOUR);
        assert!(held.state.lock().is_suspect(), "it was sent before");
        let (late, sent) = sends();
        answered(late, sent, HOUR);
        assert!(!held.state.lock().is_suspect());
        drop(sends());
        assert!(held.state.lock().is_suspect(), "no caller waits for its answer");
    }

    #[cfg(feature = "reuse")]
    #[tokio::test]
    async fn a_lock_is_suspect_once_a_call_for_it_is_dropped_without_an_answer() {
        let held = held();
        let answer = held.suspect_until_answered(async { Ok(held.state.lock().is_suspect()) });
        assert_eq!(answer.await, Ok(()), "while the call is in flight");
        assert!(!held.state.lock().is_suspect());
        let mut call = Box::pin(held.suspect_until_answered(std::future::pending()));
        assert!(futures::poll!(&mut call).is_pending());
        drop(call);
        assert!(held.state.lock().is_suspect());
    }

    #[cfg(feature = "reuse")]
    #[tokio::test]
    async fn a_call_that_finds_the_lock_with_another_holder_tells_of_the_loss() {
        let held = held();
        let error = held.suspect_until_answered(async { Ok(false) }).await.unwrap_err();
        assert!(matches!(error, LockError::Lost(_)), "{error}");
        assert!(held.check_lease().is_err());
    }

    #[test]
    fn the_pauses_between_unanswered_confirmations_grow() {
        let held = held();
        let error = LockError::SHUT_DOWN;
        let pause = || held.next_try(false, &error).unwrap().since(Moment::now());
        let pauses: Vec<_> = (0..5).map(|_| pause()).collect();
        assert!(pauses[0] < CONFIRM_AGAIN * 2, "{pauses:?}");
        assert!(pauses[3] > CONFIRM_AGAIN * 4 && pauses[4] < CONFIRM_AGAIN * 10, "{pauses:?}");
        answered(held.note_sent(Moment::now()), Moment::now(), Duration::ZERO);
        assert!(pause() < CONFIRM_AGAIN * 2, "an answer resets the pause");
    }
}
