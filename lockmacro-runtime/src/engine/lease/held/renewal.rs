//! Renewals of a granted lock: the requests, and the effect of each answer.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::Held;
use crate::engine::core::inside_runtime;
use crate::engine::lease::life::{CallKind, LifeEffects, LifeEvent, SentCall};
use crate::engine::telemetry;
use crate::engine::thread::timers::{Over, Timed};
use crate::protocol::request::Request;
use crate::store::backend::RenewKind;
use crate::store::handle::Store;
use crate::sys::backoff::Backoff;
use crate::sys::random;
use crate::sys::time::Moment;
use crate::value::error::LockError;
use crate::value::loss::{LossCause, Lost};

/// First pause before an extension is sent again whose failure may pass, and for how long it is, in
/// times for an answer.
const EXTEND_AGAIN: Duration = Duration::from_millis(10);
const ANSWERS: u32 = 4;

/// A call in flight. Dropping this records that the call is without an answer.
struct Unanswered<'a>(&'a Held, SentCall);

impl Unanswered<'_> {
    /// Records the answer that the store has `held` the lock since the call, or that the lock is
    /// lost.
    fn answered(self, held: bool) -> LifeEffects<Request> {
        let Self(holder, to) = self;
        mem::forget(self);
        holder.on(LifeEvent::Answered { to, held, jitter: random::fraction() })
    }

    /// Records that the call has failed.
    fn failed(self) -> LifeEffects<Request> {
        let Self(held, SentCall { kind: what, .. }) = self;
        drop(self);
        held.on(LifeEvent::Fails { what, jitter: random::fraction() })
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.state.lock().life.unanswered(Moment::now());
    }
}

impl Held {
    /// Renews the lease for `ttl` from now on, on the caller's runtime.
    pub(crate) async fn extend(&self, ttl: Duration) -> Result<(), LockError> {
        self.check_lease()?;
        inside_runtime()?;
        let effects = self.on(LifeEvent::Extends { ttl });
        let Some(sent) = effects.send else { return self.checked(effects.left) };
        let unanswered = Unanswered(self, sent);
        let within = self.request.ask.ttl / 3;
        let until = self.extended_again_until(sent);
        let mut pauses = Backoff::new(EXTEND_AGAIN, EXTEND_AGAIN * 16);
        let held = loop {
            let how = RenewKind::Extended(within);
            match self.manager.store.renew(&self.request, sent.ttl, how).await {
                // The connection may have been closed while nobody used it.
                Err(error) if error.is_transient() && Moment::now() < until => {
                    sleep(pauses.step()).await;
                    self.check_lease()?;
                }
                answer => break answer?,
            }
        };
        self.checked(unanswered.answered(held).left)
    }

    /// Until when an extension is sent again whose failure may pass.
    pub(super) fn extended_again_until(&self, sent: SentCall) -> Moment {
        sent.at.after((self.request.ask.ttl / 3).min(self.manager.answer_time() * ANSWERS))
    }

    fn checked(&self, left: Result<Duration, LossCause>) -> Result<(), LockError> {
        match left {
            Ok(_) => Ok(()),
            Err(cause) => Err(Lost::of(self.request.ask.listed(), cause).into()),
        }
    }

    /// Makes a call that must not arrive later than its answer, which tells whether the lock is
    /// held. Without one the lock is not passed on, as the next holder would have the same token.
    #[cfg(feature = "reuse")]
    pub(crate) async fn suspect_until_answered(
        &self,
        call: impl Future<Output = Result<bool, LockError>>,
    ) -> Result<(), LockError> {
        let sent = self.state.lock().life.calls(Moment::now());
        let unanswered = Unanswered(self, sent);
        let held = call.await?;
        let left = unanswered.answered(held).left;
        if held { Ok(()) } else { self.checked(left) }
    }
}

impl Timed for Held {
    fn run<'a>(self: Arc<Self>, store: &'a Store, over: &'a Over<'a>) -> BoxFuture<'a, ()> {
        async move {
            let request: &Request = &self.request;
            let effects = self.on(LifeEvent::Due);
            // A lock that was lost or passed on is not renewed for its last holder.
            let Some(sent) = effects.send else { return over(None) };
            let unanswered = Unanswered(&self, sent);
            let is_renewal = sent.kind == CallKind::Renewal;
            let how = if is_renewal {
                RenewKind::Acknowledged { within: request.ask.ttl / 3, left: sent.left }
            } else {
                RenewKind::Kept
            };
            let answer = store.renew(request, sent.ttl, how).await;
            // The answer "not yours" is expected then.
            if self.was_released() {
                return;
            }
            let effects = match &answer {
                Ok(held) => unanswered.answered(*held),
                Err(_) => unanswered.failed(),
            };
            over(effects.due);
            // Last: the code of a subscriber may panic.
            if let Some(left) = effects.halved
                && let Err(error) = &answer
            {
                telemetry::half_unrenewed(&request.ask, left, error);
            }
            if is_renewal || !matches!(answer, Ok(true)) {
                telemetry::renewed(&request.ask, answer.as_ref().copied());
            }
        }
        .boxed()
    }
}

#[cfg(all(test, feature = "reuse"))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::core::Core;
    use crate::engine::lease::life::Ending;
    use crate::engine::token::acquisition::Acquisition;
    use crate::protocol::answer::Grant;
    use crate::protocol::ask::Ask;
    use crate::protocol::request::Request;
    use crate::store::memory::Memory;
    use crate::value::applied::Applied;
    use crate::value::defaults::Defaults;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    /// A lock that was granted now, for an hour.
    fn held() -> Arc<Held> {
        let store = Store::of(Memory::new());
        let defaults = Defaults::default();
        let core = Core::over(store, None, defaults, Default::default());
        let request = Request::of(Ask::new("order".into(), HOUR, Moment::now()));
        let acquisition = Acquisition::new(core.in_flight.join(), core, request, None);
        let now = Moment::now();
        let grant =
            Grant { sent: now, at: now, ttl: HOUR, earlier: Applied::No, fences: Vec::new() };
        Held::new(acquisition, grant, None, None).unwrap().unwrap()
    }

    #[tokio::test]
    async fn the_cleanup_covers_an_extension_that_is_sent_again() {
        let held = held();
        let now = Moment::now();
        let sent = held.on(LifeEvent::Extends { ttl: 2 * HOUR }).send.unwrap();
        let last = held.extended_again_until(sent);
        assert!(last > now);
        assert!(now.after(held.request.lasts(now)) >= last.after(sent.ttl));
    }

    fn is_suspect(held: &Held) -> bool {
        let mut life = held.state.lock().life.clone();
        let end = life.on(LifeEvent::Ends { stays: false }, Moment::now()).end.unwrap();
        end.how != Ending::PassesOn
    }

    #[tokio::test]
    async fn a_lock_is_suspect_once_a_call_for_it_is_dropped_without_an_answer() {
        let held = held();
        let answer = held.suspect_until_answered(async { Ok(is_suspect(&held)) });
        assert_eq!(answer.await, Ok(()), "while the call is in flight");
        assert!(!is_suspect(&held));
        let mut call = Box::pin(held.suspect_until_answered(std::future::pending()));
        assert!(futures::poll!(&mut call).is_pending());
        drop(call);
        assert!(is_suspect(&held));
    }

    #[tokio::test]
    async fn a_call_that_finds_the_lock_with_another_holder_tells_of_the_loss() {
        let held = held();
        let error = held.suspect_until_answered(async { Ok(false) }).await.unwrap_err();
        assert!(matches!(error, LockError::Lost(_)), "{error}");
        assert!(held.check_lease().is_err());
    }
}
