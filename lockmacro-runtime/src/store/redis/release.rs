//! Releasing, renewing and confirming a lock that its token still holds. Replicas may have to
//! acknowledge a renewal.

use std::slice;
use std::time::Duration;

use redis::Value;

use super::store::{CONFIRM_WINDOW_MS, Redis};
use crate::protocol::answer::{Released, StoreFuture};
use crate::protocol::request::Request;
use crate::store::join::held_all;
use crate::store::redis::client::error::unexpected;
use crate::store::redis::client::node::Node;
use crate::store::redis::client::script::{ScriptCall, Sent};
use crate::store::redis::reply::parsed;
use crate::store::redis::scripts::{
    RELEASE, RELEASE_ALL, RELEASE_MIGRATING, RELEASE_MIGRATING_SHARED, RELEASE_SHARED,
    RELEASE_UNCONTENDED, renew_script,
};
use crate::store::remote::budget::{Budget, Retry};
use crate::store::remote::error::{RemoteError, Transient};
use crate::sys::time::{Instant, Moment};
use crate::value::applied::Applied;
use crate::value::companion::slot;
use crate::value::error::{LockError, UnavailableReason};

/// Shortest time to wait for the answer to a renewal.
const RENEWAL_ANSWER_MIN: Duration = Duration::from_millis(50);
/// Fewest round trips in a ttl that can be renewed in time: the first renewal is sent after a third
/// of the ttl.
const ROUND_TRIPS: u32 = 4;

/// How a release is sent, and for how long its answer is waited for.
#[derive(Clone, Copy)]
pub(crate) struct Sending {
    pub(super) sent: Sent,
    pub(super) budget: Budget,
}

impl Redis {
    pub(crate) async fn release(&self, request: &Request) -> Result<Released, LockError> {
        self.release_by(request, self.sends_first()).await
    }

    /// A first release.
    pub(crate) fn sends_first(&self) -> Sending {
        Sending { sent: Sent::ByHash, budget: self.brief() }
    }

    /// A release that had no answer before. The server may not know the script, and be so far away
    /// that nobody waits until it says so; so the call has the text.
    pub(crate) fn sends_again(&self, within: Duration) -> Sending {
        let answer = within.max(self.brief().answer);
        Sending { sent: Sent::ByText, budget: Budget::new(answer, answer) }
    }

    /// Releases a lock in one of these ways.
    pub(crate) async fn release_by(
        &self,
        request: &Request,
        how: Sending,
    ) -> Result<Released, LockError> {
        let keep = request.token.stays_for(Moment::now());
        let mut earlier = Applied::No;
        let is_exclusive = request.ask.key.mode().is_exclusive();
        let script = if request.token.was_awaited() {
            None
        } else if !is_exclusive {
            // It does nothing for a token that may be in the queue.
            Some(&RELEASE_SHARED)
        } else {
            (!request.token.was_queued()).then_some(&RELEASE_UNCONTENDED)
        };
        if let Some(script) = script.filter(|_| request.ask.several.is_empty() && keep.is_zero()) {
            let args = [request.token.secret.expose()];
            let call = ScriptCall { sent: how.sent, ..script.with(request.ask.keys(), &args) };
            match self.own(call, how.budget, &mut earlier).await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) | Err(RemoteError::Split(_)) => {}
                Err(error) => return Err(error.into_error(&request.ask.key)),
            }
        }
        // Boxed, because it is seldom needed.
        Box::pin(self.hand_off(request, how, keep, earlier)).await
    }

    /// Releases a lock and hands it off to the first waiter. `earlier`: whether a release before
    /// this one was applied.
    async fn hand_off(
        &self,
        request: &Request,
        how: Sending,
        keep: Duration,
        mut earlier: Applied,
    ) -> Result<Released, LockError> {
        let keep = keep.as_millis().to_string();
        let args =
            [request.token.secret.expose(), &keep, &CONFIRM_WINDOW_MS, &self.fence_retention];
        let script = if request.ask.several.is_empty() { &RELEASE } else { &RELEASE_ALL };
        let call = ScriptCall { sent: how.sent, ..script.with(request.ask.keys(), &args) };
        let mut answer = self.own(call, how.budget, &mut earlier).await;
        // A token that is not held may still be in the queue, where only the full script removes
        // it.
        if keep == "0" && matches!(answer, Err(RemoteError::Split(_))) && self.free(request).await {
            answer = Ok(Some(Released::Held));
        }
        let found = answer.map_err(|error| error.into_error(&request.ask.key))?;
        Ok(found.unwrap_or(Released::NotHeld))
    }

    /// Renews a lock that its token still holds. `strict` for a lease that is about to end: it has
    /// no time for a second call on a dead connection. Many other calls at once must not close
    /// connections.
    pub(crate) fn renew<'a>(
        &'a self,
        request: &'a Request,
        ttl: Duration,
        strict: bool,
    ) -> StoreFuture<'a, Result<bool, LockError>> {
        Box::pin(async move {
            let brief = self.brief();
            let answer = self.renewal_answer(request, ttl).min(brief.answer);
            let budget = Budget { answer, strict, ..brief };
            let args = [request.token.secret.expose(), &ttl.as_millis().to_string()];
            let call = renew_script(request).with(request.ask.keys(), &args);
            match self.own(call, budget, &mut Applied::No).await {
                Err(RemoteError::Split(_)) if !request.ask.several.is_empty() => {
                    let parts = request.each();
                    held_all(parts.iter().map(|part| self.renew(part, ttl, strict))).await
                }
                Ok(found) => Ok(found == Some(Released::Held)),
                Err(error) => Err(error.into_error(&request.ask.key)),
            }
        })
    }

    /// Renews a lock and waits for replicas to acknowledge that. Transient errors are retried for
    /// at most `within`; a call that was sent by then still has its full time.
    pub(crate) fn renew_acknowledged<'a>(
        &'a self,
        request: &'a Request,
        ttl: Duration,
        within: Duration,
    ) -> StoreFuture<'a, Result<bool, LockError>> {
        let Some(replicated) = self.replicated else {
            return self.renew(request, ttl, true);
        };
        Box::pin(async move {
            let replicated = replicated.within(ttl.max(request.ask.ttl));
            let answer = self.renewal_answer(request, ttl).min(self.brief().answer);
            let answer = answer + replicated.timeout;
            let until = Instant::now() + self.timeout.min(within);
            let mut retry = Retry::new(Budget { answer, until, strict: true });
            let args = [request.token.secret.expose(), &*ttl.as_millis().to_string()];
            let ask = |budget, _| async move {
                let call = renew_script(request).with(request.ask.keys(), &args);
                let eval = |node: Node| async move {
                    node.eval_acknowledged(call, replicated, budget).await
                };
                match self.nodes.route(|| slot(request.ask.key.as_str()), budget, eval).await {
                    Ok((reply, acked)) => Ok(Some((parsed(reply)?, acked))),
                    // The key holds something else now, and not the token.
                    Err(RemoteError::NotALock) => Ok(Some((false, 0))),
                    // The keys are renewed one by one then, so a retry is of no use.
                    Err(RemoteError::Split(_)) if !request.ask.several.is_empty() => Ok(None),
                    Err(error) => Err(error),
                }
            };
            match retry.repeat(ask).await.map_err(|error| error.into_error(&request.ask.key))? {
                Some((true, acked)) if acked < replicated.acks => {
                    let detail = format!(
                        "only {acked} of {} replicas have acknowledged `{}` in time: repair the \
                         replicas, or require fewer of them with `replicated`",
                        replicated.acks,
                        request.ask.key.shown()
                    );
                    let server = self.server_of(&request.ask.key);
                    Err(LockError::unavailable_at(
                        server,
                        UnavailableReason::NotAcknowledged,
                        detail,
                    ))
                }
                Some((held, _)) => Ok(held),
                None => {
                    let parts = request.each();
                    held_all(parts.iter().map(|part| self.renew_acknowledged(part, ttl, within)))
                        .await
                }
            }
        })
    }

    /// The time to wait for the answer to a renewal: as long as a healthy server may take, and
    /// short enough for another renewal within the lease.
    fn renewal_answer(&self, request: &Request, ttl: Duration) -> Duration {
        let ttl = ttl.max(request.ask.ttl);
        let Some(node) = self.nodes.node_of(&request.ask.key) else {
            return (ttl / 10).max(RENEWAL_ANSWER_MIN);
        };
        let measured = &node.health().round_trip;
        let round_trip = measured.shortest();
        let shortest = measured.shortest() * ROUND_TRIPS;
        if ttl < shortest && measured.should_warn() {
            tracing::warn!(
                ?ttl,
                ?round_trip,
                ?shortest,
                "a ttl is too short for the round trip to the server: \
                 the lease may end before it is renewed"
            );
        }
        (ttl / 10)
            .max(RENEWAL_ANSWER_MIN + measured.longest())
            .min((ttl / 2).max(RENEWAL_ANSWER_MIN))
    }

    /// Releases locks without a look at their queues; returns whether all of them were held.
    async fn free(&self, request: &Request) -> bool {
        let mut held = true;
        let args = [request.token.secret.expose()];
        for key in request.ask.keys() {
            let script = if key.mode().is_exclusive() {
                &RELEASE_MIGRATING
            } else {
                &RELEASE_MIGRATING_SHARED
            };
            let call = script.with(slice::from_ref(key), &args);
            let freed = self.own(call, self.brief(), &mut Applied::No).await;
            held &= matches!(freed, Ok(Some(Released::Held)));
        }
        held
    }

    /// Calls a script that applies only if the token holds the lock, and calls it again if the
    /// connection had to be replaced. Returns what it found; `None` when it did nothing because of
    /// waiters. `earlier` keeps whether the calls before the last one were applied.
    async fn own(
        &self,
        call: ScriptCall<'_>,
        budget: Budget,
        earlier: &mut Applied,
    ) -> Result<Option<Released>, RemoteError> {
        let mut reply = self.eval(call, budget).await;
        // A renewal is not sent again here: its caller decides whether it is still wanted.
        if let Err(RemoteError::Transient(Transient { replace: true, applied, .. })) = reply
            && !budget.strict
        {
            *earlier = earlier.and(applied);
            // The time may be used up on a connection of another runtime, which is blocked.
            let until = budget.until.max(Instant::now() + budget.answer / 2);
            reply = self.eval(call, Budget { until, ..budget }).await;
        }
        match reply {
            Ok(Value::Int(1)) => Ok(Some(Released::Held)),
            Ok(Value::Int(2)) => Ok(None),
            // The token does not hold the lock, or the key holds another type now.
            Ok(Value::Int(0)) | Err(RemoteError::NotALock) => {
                Ok(Some(Released::of(false, *earlier)))
            }
            Ok(other) => Err(unexpected(&other)),
            Err(error) => Err(error),
        }
    }
}
