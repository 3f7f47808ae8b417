//! What is done to a lock that is still its token's own: it is renewed, given back, and handed to who
//! waits.

use std::time::Duration;

use redis::Value;

use super::node::{Node, Patience};
use super::nodes::Nodes;
use super::script::{FREE, GIVE_BACK, RELEASE, RELEASE_EACH, RENEW, RENEW_EACH, Script};
use super::trouble::{self, Passing, Trouble};
use super::{CLAIM_MS, Redis, unexpected};
use crate::backend::parts::held_all;
use crate::backend::{Asked, Claim, Released};
use crate::error::LockError;
use crate::side::slot;

/// How long the answer to a renewal is waited for at least.
pub(super) const RENEWAL_MIN: Duration = Duration::from_millis(50);

impl Redis {
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
        let mut near = self.near(claim);
        let channel = near.as_ref().map(Near::channel).unwrap_or_default();
        let args = [claim.token.expose(), &keep, CLAIM_MS, &channel];
        let script = if claim.several.is_empty() { &RELEASE } else { &RELEASE_EACH };
        let answer = match self.own(script, claim, &args, self.brief()).await {
            Err(error) if is_split(&error) && keep == "0" => {
                // What is not held may still stand in line, and then is not done with.
                if self.free(claim).await { Ok((Own::Held, false)) } else { Err(error) }
            }
            answer => answer,
        };
        if let (Some(near), Ok((own, resent))) = (&mut near, &answer) {
            near.pass_on(own, *resent);
        }
        answer.map(released)
    }

    /// Who waits for this lock in this process, if the answer to a release can be for them.
    fn near(&self, claim: &Claim) -> Option<Near<'_>> {
        let Nodes::One(node) = &self.nodes else { return None };
        let connection = node.connection().filter(|_| claim.several.is_empty())?;
        Some(Near { node, connection, slot: slot(claim.key.as_str()), told: false })
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
            Ok(Value::BulkString(word)) => Ok((Own::HandedOver(word), resent)),
            Ok(other) => Err(unexpected(&other).into_error(&claim.key)),
            // Whatever is there now, it is not ours.
            Err(Trouble::NotALock) => Ok((Own::NotHeld, resent)),
            Err(trouble) => Err(trouble.into_error(&claim.key)),
        }
    }
}

/// What a script found of a lock that it does something to if it is the token's own.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Own {
    Held,
    NotHeld,
    /// It was held, and this is what one of our waiters is to hear.
    HandedOver(Vec<u8>),
    /// It is held, and others wait for it; nothing was done.
    Awaited,
}

/// Who waits in this process for a lock that is given back. The answer tells us who of them has it now,
/// and spares the server a message; where it does not come, they ask.
struct Near<'a> {
    node: &'a Node,
    connection: u64,
    slot: u16,
    told: bool,
}

impl Near<'_> {
    fn channel(&self) -> String {
        self.node.grants().channel(self.slot)
    }

    fn pass_on(&mut self, own: &Own, resent: bool) {
        self.told = match own {
            Own::HandedOver(word) => self.node.hear(self.connection, word),
            // An earlier answer that did not come was perhaps for one of them.
            _ => !resent,
        };
    }
}

impl Drop for Near<'_> {
    fn drop(&mut self) {
        if !self.told {
            self.node.grants().waiters.alarm_where(|slot| slot == self.slot);
        }
    }
}

/// What a release found, and perhaps another one before it.
fn released((own, resent): (Own, bool)) -> Released {
    match own {
        Own::Held | Own::HandedOver(_) => Released::Held,
        // The first one may have found it.
        Own::NotHeld | Own::Awaited if resent => Released::Unconfirmed,
        Own::NotHeld | Own::Awaited => Released::NotHeld,
    }
}

/// Whether keys of one lock are at different nodes, because their slot is being moved.
fn is_split(error: &LockError) -> bool {
    matches!(error, LockError::Unavailable { detail, .. } if trouble::is_split(detail))
}
