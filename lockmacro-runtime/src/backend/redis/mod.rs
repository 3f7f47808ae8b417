//! Locks on one Redis server: `SET NX PX`, three scripts, and what to do when no answer comes.

mod batches;
#[cfg(feature = "defer")]
mod calls;
mod changes;
mod cluster;
mod connection;
mod ear;
mod errand;
mod grants;
mod greeting;
#[cfg(feature = "defer")]
mod jobs;
mod line;
mod listening;
#[cfg(feature = "look")]
mod look;
#[cfg(feature = "defer")]
mod looks;
mod many;
mod map;
mod node;
mod nodes;
mod replicated;
mod reply;
mod reserve;
mod script;
mod sentinel;
mod tls;
mod tries;
mod trouble;
mod url;
mod vote;
mod way;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::Instant;

#[cfg(feature = "defer")]
pub(crate) use self::jobs::RedisJobs;
use self::node::Patience;
use self::nodes::Nodes;
pub(crate) use self::replicated::{Replicated, not_replicated};
use self::reply::{Reply, answer, fence, unexpected};
use self::script::{ACQUIRE, FREE, GIVE_BACK, RELEASE, RELEASE_EACH, RENEW, RENEW_EACH, Script};
use self::tries::Tries;
use self::trouble::{Passing, Trouble};
use super::parts::held_all;
use super::{Answer, Asked, Claim, Failed, Grant, Line, Released};
use crate::clock::Moment;
use crate::error::{LockError, Unavailability};
use crate::fence::Fences;
use crate::key::LockKey;
use crate::lease::late;

pub(crate) use url::{UNESCAPED, duration, no_setting};
pub(crate) use vote::{Silence, Vote};

/// The manager's timeout is good for so many unanswered commands.
const TRIES: u32 = 4;
/// [`CLAIM`](crate::waiting::CLAIM) as the scripts take it.
const CLAIM_MS: &str = "5000";
/// How long the answer to a renewal is waited for at least.
const RENEWAL_MIN: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Redis {
    nodes: Nodes,
    timeout: Duration,
    /// Whether the server wants the keys of a script in one slot, as it has told by CROSSSLOT.
    slots: Arc<AtomicBool>,
    /// What replicas have to acknowledge, if anything.
    replicated: Option<Replicated>,
}

impl Redis {
    /// Locks on the server at `url`, or the cluster, not connected yet. No call takes longer than
    /// `timeout`.
    pub(crate) fn new(url: &str, timeout: Duration) -> Result<Self, LockError> {
        let nodes = Nodes::new(url, timeout)?;
        let slots = Arc::new(AtomicBool::new(matches!(nodes, Nodes::Cluster(_))));
        let replicated = nodes.replicated();
        Ok(Self { nodes, timeout, slots, replicated })
    }

    pub(crate) fn apart(&self) -> Self {
        let (timeout, slots) = (self.timeout, Arc::clone(&self.slots));
        Self { nodes: self.nodes.apart(), timeout, slots, replicated: self.replicated }
    }

    /// Connects, or says why not.
    pub(crate) async fn ready(&self) -> Result<(), LockError> {
        // No key is part of what can go wrong here.
        let nothing = LockKey::from("");
        let mut tries = Tries::new(self.patience());
        loop {
            let trouble = match self.nodes.ready(tries.patience.until).await {
                Ok(()) => return Ok(()),
                Err(Trouble::Passing(passing)) => tries.after(passing).await.err(),
                Err(trouble) => Some(trouble),
            };
            if let Some(trouble) = trouble {
                return Err(trouble.into_error(&nothing));
            }
        }
    }

    /// Has `tell` called when the server may be another one than the one that granted our locks.
    pub(crate) fn on_change(&self, tell: impl Fn() + Send + Sync + 'static) {
        self.nodes.on_change(tell);
    }

    pub(crate) fn fails_over(&self) -> bool {
        self.nodes.fails_over()
    }

    /// Has a server that stands still, or is no primary any more, noticed.
    pub(crate) async fn look(&self) {
        self.nodes.look(self.brief()).await;
    }

    pub(crate) fn disconnect(&self) {
        self.nodes.disconnect();
    }

    /// Asks for a lock once; a server in trouble is given the timeout, or until then.
    pub(crate) async fn acquire(
        &self,
        claim: &Claim,
        until: Option<Instant>,
    ) -> Result<Answer, Failed> {
        let waiting = until.map(|until| self.patience_while_waiting(until));
        let mut tries = Tries::new(waiting.unwrap_or_else(|| self.patience()));
        // More than enough for a full line of dead ones.
        let mut passes = 128;
        loop {
            // A plain SET would not know what an earlier try has set.
            let first = !tries.unknown;
            let passing = match self.ask(claim, first, tries.patience).await {
                Ok(Reply::Granted { sent, .. }) if late(sent, claim.ttl) => {
                    let detail = format!("the ttl is {:?}", claim.ttl);
                    let reason = Unavailability::TooSlow;
                    Ok(Passing { reason, detail, unknown: true, replace: false })
                }
                Ok(Reply::Granted { sent, fences }) => {
                    let (ttl, resent) = (claim.ttl, tries.unknown);
                    return Ok(Answer::Granted(Grant { sent, at: sent, ttl, resent, fences }));
                }
                Ok(busy)
                    if busy.is_nobodys() && passes > 0 && Instant::now() < tries.patience.until =>
                {
                    passes -= 1;
                    continue;
                }
                Ok(Reply::Busy { nth, owner, left, .. }) => {
                    let (line, resent) = (Line::Outside, tries.unknown);
                    return Ok(Answer::Busy { nth, owner, left, line, resent });
                }
                Err(Trouble::Passing(passing)) => Ok(passing),
                Err(trouble) => Err(trouble),
            };
            let trouble = match passing {
                Ok(passing) => tries.after(passing).await.err(),
                Err(trouble) => Some(trouble),
            };
            if let Some(trouble) = trouble {
                let error = trouble.into_error(&claim.key);
                return Err(Failed { error, written: tries.unknown });
            }
        }
    }

    pub(crate) async fn release(&self, claim: &Claim) -> Result<Released, LockError> {
        let keep = claim.keep();
        if claim.several.is_empty() && claim.wait.is_none() && keep.is_zero() {
            let args = [claim.token.expose()];
            match self.own(&GIVE_BACK, claim, &args, self.brief()).await {
                Ok((Own::Awaited, _)) => {}
                Err(error) if is_split(&error) => {}
                answer => return answer.map(released),
            }
        }
        // Boxed, as it mostly is not needed.
        Box::pin(self.hand_over(claim, keep)).await
    }

    /// Gives a lock back, and hands it to who waits.
    async fn hand_over(&self, claim: &Claim, keep: Duration) -> Result<Released, LockError> {
        let keep = keep.as_millis().to_string();
        let args = [claim.token.expose(), &keep, CLAIM_MS];
        let script = if claim.several.is_empty() { &RELEASE } else { &RELEASE_EACH };
        let answer = match self.own(script, claim, &args, self.brief()).await {
            Err(error) if is_split(&error) && keep == "0" => {
                // What is not held may still stand in line, and then is not done with.
                if self.free(claim).await { Ok((Own::Held, false)) } else { Err(error) }
            }
            answer => answer,
        };
        answer.map(released)
    }

    pub(crate) async fn renew(&self, claim: &Claim, ttl: Duration) -> Result<bool, LockError> {
        // A lease that runs out has no time to find out twice that a connection is dead.
        self.lengthen(claim, ttl, true).await
    }

    /// Has a lock kept for as long as its holder believes in it, if it is still its own.
    pub(crate) async fn confirm(&self, claim: &Claim, left: Duration) -> Result<bool, LockError> {
        // Nothing runs out, and a crowd of these must not end connections.
        self.lengthen(claim, left, false).await
    }

    async fn lengthen(
        &self,
        claim: &Claim,
        ttl: Duration,
        strict: bool,
    ) -> Result<bool, LockError> {
        let brief = self.brief();
        let answer = (ttl.max(claim.ttl) / 10).max(RENEWAL_MIN).min(brief.answer);
        let patience = Patience { answer, strict, ..brief };
        let args = [claim.token.expose(), &ttl.as_millis().to_string()];
        let script = if claim.several.is_empty() { &RENEW } else { &RENEW_EACH };
        match self.own(script, claim, &args, patience).await {
            Err(error) if is_split(&error) && !claim.several.is_empty() => {
                let parts = claim.each();
                held_all(parts.iter().map(|part| -> Asked<'_, _> {
                    let own = self.own(&RENEW, part, &args, patience);
                    Box::pin(async { Ok(own.await?.0 == Own::Held) })
                }))
                .await
            }
            own => Ok(own?.0 == Own::Held),
        }
    }

    /// Gives locks back without a look at their lines; tells whether all of them were held.
    async fn free(&self, claim: &Claim) -> bool {
        let mut held = true;
        for part in claim.each() {
            let args = [claim.token.expose()];
            held &= matches!(self.own(&FREE, &part, &args, self.brief()).await, Ok((Own::Held, _)));
        }
        held
    }

    /// Calls a script that does something to a lock if it is still the token's own. Tells whether
    /// it was, and whether an earlier call that may have been applied had no answer.
    async fn own(
        &self,
        script: &Script,
        claim: &Claim,
        args: &[&str],
        patience: Patience,
    ) -> Result<(Own, bool), LockError> {
        let mut reply = self.eval(script, claim.keys(), args, patience).await;
        let mut resent = false;
        // A renewal is sent again only while it is wanted, which is for its table to say.
        if let Err(Trouble::Passing(Passing { replace: true, unknown, .. })) = reply
            && !patience.strict
        {
            resent = unknown;
            reply = self.eval(script, claim.keys(), args, patience).await;
        }
        match reply {
            Ok(Value::Int(0)) => Ok((Own::NotHeld, resent)),
            Ok(Value::Int(1)) => Ok((Own::Held, resent)),
            Ok(Value::Int(2)) => Ok((Own::Awaited, resent)),
            Ok(other) => Err(unexpected(&other).into_error(&claim.key)),
            // Whatever is there now, it is not ours.
            Err(Trouble::NotALock) => Ok((Own::NotHeld, resent)),
            Err(trouble) => Err(trouble.into_error(&claim.key)),
        }
    }

    /// One round: the plain SET while nothing of this token was ever sent, then the script, which
    /// knows the token again. A fence takes the script from the start.
    async fn ask(&self, claim: &Claim, first: bool, patience: Patience) -> Result<Reply, Trouble> {
        if !claim.several.is_empty() {
            return Box::pin(self.ask_for_several(claim, patience)).await;
        }
        let (key, token) = (claim.key.as_str(), claim.token.expose());
        let ttl = claim.ttl.as_millis();
        if first && !claim.fenced {
            let mut set = Cmd::with_capacity(6, key.len() + token.len() + 16);
            set.arg("SET").arg(key).arg(token).arg("NX").arg("PX").arg(ttl);
            let sent = Moment::now();
            match self.nodes.call(&claim.key, set, patience).await? {
                Value::Okay => return Ok(Reply::Granted { sent, fences: Fences::default() }),
                Value::Nil => {}
                other => return Err(unexpected(&other)),
            }
        }
        let fenced = if claim.fenced { "1" } else { "0" };
        let args = [token, &ttl.to_string(), fenced, CLAIM_MS, "0"];
        // Boxed, because a lock mostly is free, and then there is no need for it.
        Box::pin(self.question(claim, &args, patience)).await
    }

    /// Calls the script that asks for a lock.
    async fn question(
        &self,
        claim: &Claim,
        args: &[&str],
        patience: Patience,
    ) -> Result<Reply, Trouble> {
        let sent = Moment::now();
        answer(self.eval(&ACQUIRE, claim.keys(), args, patience).await?, sent)
    }

    /// Calls a script with these keys.
    async fn eval(
        &self,
        script: &Script,
        keys: &[LockKey],
        args: &[&str],
        patience: Patience,
    ) -> Result<Value, Trouble> {
        let reply = self.nodes.eval(script, keys, args, patience).await;
        if let Err(Trouble::CrossSlot) = reply {
            self.slots.store(true, Ordering::Relaxed);
        }
        reply
    }

    /// How long an answer may take.
    pub(crate) fn answer(&self) -> Duration {
        self.timeout / TRIES
    }

    fn patience(&self) -> Patience {
        Patience::new(self.answer(), self.timeout)
    }

    /// The patience of somebody who has other things to do: one answer's time for all.
    fn brief(&self) -> Patience {
        Patience::new(self.answer(), self.answer())
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
    matches!(error, LockError::Unavailable { detail, .. } if trouble::is_split(detail))
}
