//! What is done to a lock that is still its token's own: it is renewed, given back, and handed to who
//! waits.

use std::time::Duration;

use redis::Value;

use crate::protocol::answer::{Asked, Released};
use crate::protocol::request::Request;
use crate::store::join::held_all;
use crate::store::redis::client::budget::Budget;
use crate::store::redis::client::error::unexpected;
use crate::store::redis::client::error::{CallError, Transient, is_split as is_split_text};
use crate::store::redis::client::script::Script;
use crate::store::redis::pubsub::local_releases::LocalRelease;
use crate::store::redis::scripts::{
    RELEASE, RELEASE_ALL, RELEASE_MIGRATING, RELEASE_UNCONTENDED, RENEW, RENEW_ALL,
};
use crate::store::redis::store::{CONFIRM_WINDOW_MS, Redis};
use crate::store::redis::topology::route::Topology;
use crate::value::error::LockError;

/// How long the answer to a renewal is waited for at least.
const RENEWAL_ANSWER_MIN: Duration = Duration::from_millis(50);
/// A ttl of fewer round trips cannot be relied on to be renewed in time: the first renewal leaves
/// after a third of it.
const ROUND_TRIPS: u32 = 4;

impl Redis {
    pub(crate) async fn release(&self, request: &Request) -> Result<Released, LockError> {
        let keep = request.keep();
        if request.several().is_empty() && request.until.is_none() && keep.is_zero() {
            let args = [request.token.expose()];
            match self.own(&RELEASE_UNCONTENDED, request, &args, self.brief()).await {
                Ok((Own::Awaited, _)) => {}
                Err(error) if is_split(&error) => {}
                answer => return answer.map(released),
            }
        }
        // Boxed, as it mostly is not needed.
        Box::pin(self.hand_off(request, keep)).await
    }

    /// Gives a lock back, and hands it to who waits.
    async fn hand_off(&self, request: &Request, keep: Duration) -> Result<Released, LockError> {
        let keep = keep.as_millis().to_string();
        let args = [request.token.expose(), &keep, CONFIRM_WINDOW_MS, &self.fence_retention];
        let (keys, brief) = (request.keys(), self.brief());
        let script = if request.several().is_empty() { &RELEASE } else { &RELEASE_ALL };
        let reply = match self.local(request) {
            None => self.eval(script, keys, &args, brief).await,
            Some(local) => {
                let [token, keep, window, fences] = args;
                let args = [token, keep, window, fences, &local.channel()];
                match self.eval(script, keys, &args, brief).await {
                    Ok(Value::BulkString(grant)) => {
                        local.answered(Some(&grant));
                        Ok(Value::Int(1))
                    }
                    reply => {
                        if reply.is_ok() {
                            local.answered(None);
                        }
                        reply
                    }
                }
            }
        };
        let answer = match self.read_own(reply, script, request, &args, brief).await {
            Err(error) if is_split(&error) && keep == "0" => {
                // What is not held may still stand in line, and then is not done with.
                if self.free(request).await { Ok((Own::Held, false)) } else { Err(error) }
            }
            answer => answer,
        };
        answer.map(released)
    }

    /// Who waits by this manager, where the answer to a release can be for one of them.
    fn local(&self, request: &Request) -> Option<LocalRelease> {
        match &self.nodes {
            Topology::One(node) if request.several().is_empty() => {
                LocalRelease::of(&self.grants, node, &request.key)
            }
            _ => None,
        }
    }

    pub(crate) async fn renew(&self, request: &Request, ttl: Duration) -> Result<bool, LockError> {
        // A lease that runs out has no time to find out twice that a connection is dead.
        self.renew_for(request, ttl, true).await
    }

    /// Has a lock kept for as long as its holder believes in it, if it is still its own.
    pub(crate) async fn confirm(
        &self,
        request: &Request,
        left: Duration,
    ) -> Result<bool, LockError> {
        // Nothing runs out, and a crowd of these must not end connections.
        self.renew_for(request, left, false).await
    }

    async fn renew_for(
        &self,
        request: &Request,
        ttl: Duration,
        strict: bool,
    ) -> Result<bool, LockError> {
        let brief = self.brief();
        let answer = self.renewal_answer(request, ttl).min(brief.answer);
        let budget = Budget { answer, strict, ..brief };
        let args = [request.token.expose(), &ttl.as_millis().to_string()];
        let script = if request.several().is_empty() { &RENEW } else { &RENEW_ALL };
        match self.own(script, request, &args, budget).await {
            Err(error) if is_split(&error) && !request.several().is_empty() => {
                let parts = request.each();
                held_all(parts.iter().map(|part| -> Asked<'_, _> {
                    let own = self.own(&RENEW, part, &args, budget);
                    Box::pin(async { Ok(own.await?.0 == Own::Held) })
                }))
                .await
            }
            own => Ok(own?.0 == Own::Held),
        }
    }

    /// How long the answer to a renewal is waited for: as long as the server may take, and not so
    /// long that no other one fits into the lease.
    pub(crate) fn renewal_answer(&self, request: &Request, ttl: Duration) -> Duration {
        let ttl = ttl.max(request.ttl);
        let Some(measured) = self.nodes.round_trip(&request.key) else {
            return (ttl / 10).max(RENEWAL_ANSWER_MIN);
        };
        let (round_trip, shortest) = (measured.shortest(), measured.shortest() * ROUND_TRIPS);
        if ttl < shortest && measured.should_warn() {
            tracing::warn!(
                ?ttl,
                ?round_trip,
                ?shortest,
                "a ttl is too short for the round trip to the server: the lease may end before it is renewed"
            );
        }
        (ttl / 10)
            .max(RENEWAL_ANSWER_MIN + measured.longest())
            .min((ttl / 2).max(RENEWAL_ANSWER_MIN))
    }

    /// Gives locks back without a look at their lines; tells whether all of them were held.
    async fn free(&self, request: &Request) -> bool {
        let mut held = true;
        for part in request.each() {
            let args = [request.token.expose()];
            held &= matches!(
                self.own(&RELEASE_MIGRATING, &part, &args, self.brief()).await,
                Ok((Own::Held, _))
            );
        }
        held
    }

    /// Calls a script that does something to a lock if it is still the token's own. Tells whether
    /// it was, and whether an earlier call that may have been applied had no answer.
    async fn own(
        &self,
        script: &'static Script,
        request: &Request,
        args: &[&str],
        budget: Budget,
    ) -> Result<(Own, bool), LockError> {
        let reply = self.eval(script, request.keys(), args, budget).await;
        self.read_own(reply, script, request, args, budget).await
    }

    /// The same when a first reply is there; without one it is called again.
    async fn read_own(
        &self,
        mut reply: Result<Value, CallError>,
        script: &'static Script,
        request: &Request,
        args: &[&str],
        budget: Budget,
    ) -> Result<(Own, bool), LockError> {
        let mut resent = false;
        // A renewal is sent again only while it is wanted, which is for its table to say.
        if let Err(CallError::Transient(Transient { replace: true, unknown, .. })) = reply
            && !budget.strict
        {
            resent = unknown;
            reply = self.eval(script, request.keys(), args, budget).await;
        }
        match reply {
            Ok(Value::Int(0)) => Ok((Own::NotHeld, resent)),
            Ok(Value::Int(1)) => Ok((Own::Held, resent)),
            Ok(Value::Int(2)) => Ok((Own::Awaited, resent)),
            Ok(other) => Err(unexpected(&other).into_error(&request.key)),
            // Whatever is there now, it is not ours.
            Err(CallError::NotALock) => Ok((Own::NotHeld, resent)),
            Err(error) => Err(error.into_error(&request.key)),
        }
    }
}

/// What a script found of a lock that it does something to if it is the token's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    Held,
    NotHeld,
    /// It is held, and others wait for it; nothing was done.
    Awaited,
}

/// What a release found, and perhaps another one before it.
fn released((own, resent): (Own, bool)) -> Released {
    match own {
        Own::Held => Released::Held,
        // The first one may have found it.
        Own::NotHeld | Own::Awaited if resent => Released::Unconfirmed,
        Own::NotHeld | Own::Awaited => Released::NotHeld,
    }
}

/// Whether keys of one lock are at different nodes, because their slot is being moved.
fn is_split(error: &LockError) -> bool {
    matches!(error, LockError::Unavailable { detail, .. } if is_split_text(detail))
}
