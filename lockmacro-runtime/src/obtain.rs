//! From the description of a lock to a guard, or to what the caller is told instead.

use std::sync::Arc;
use std::time::Duration;

use crate::LockManager;
use crate::backend::{Claim, Grant, Line};
use crate::blocking::may_block;
use crate::clock::Moment;
#[cfg(feature = "defer")]
use crate::defer::refused;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::held::Held;
use crate::hold::{Hold, Refusal};
use crate::lease::{Renewal, check_ttl};
use crate::lock::Lock;
use crate::loss::OnLost;
use crate::manager::inside_runtime;
use crate::many::{around, in_order};
use crate::scope::Scope;
use crate::telemetry::{self, Labels};
use crate::token::Token;

/// Nobody runs deferred calls.
#[cfg(not(feature = "defer"))]
fn refused(_: &LockError) {}

impl<F> Lock<F> {
    /// Does everything that can be done without a server.
    fn prepare(self, fenced: bool) -> Result<Prepared, LockError> {
        self.key.check()?;
        let several = in_order(&self.key, &self.more)?;
        let ttl = check_ttl(self.ttl)?;
        let manager = self.manager.map_or_else(LockManager::installed, Ok)?;
        let ours = |held: &Held| held.manager().is(&manager);
        if several.is_empty() {
            if let Some(held) = Scope::find(|held| ours(held) && held.nth(&self.key).is_some()) {
                let nth = held.nth(&self.key);
                return LockGuard::joining(held, nth, self.on_lost).map(Prepared::Joined);
            }
        } else if let Some(held) = around(&several, ours)? {
            return LockGuard::joining(held, None, self.on_lost).map(Prepared::Joined);
        }
        let asked = Moment::now();
        let token = Token::new(manager.label(), &self.name, asked)?;
        let template = self.key.made_of();
        let first = several.first().cloned().unwrap_or(self.key);
        let mut claim = Claim::new(first, token, ttl);
        claim.several = several;
        claim.labels = Labels { name: self.name, template };
        claim.min_hold = self.min_hold.min(ttl);
        claim.fenced = fenced;
        claim.wait = self.wait;
        let wanted = Wanted {
            asked,
            renewed: self.renewed.unwrap_or(true),
            max_hold: self.max_hold,
            on_lost: self.on_lost,
            message: self.message,
        };
        Ok(Prepared::ToAsk(manager, Arc::new(claim), wanted))
    }
}

enum Prepared {
    Joined(LockGuard),
    ToAsk(LockManager, Arc<Claim>, Wanted),
}

/// The description is boxed: a future keeps the room of what it was given, and this one waits.
pub(crate) async fn obtain<F>(lock: Box<Lock<F>>, fenced: bool) -> Result<LockGuard, LockError> {
    let (manager, claim, wanted) = match lock.prepare(fenced).inspect_err(refused)? {
        Prepared::Joined(guard) => return Ok(guard),
        Prepared::ToAsk(manager, claim, wanted) => (manager, claim, wanted),
    };
    inside_runtime()?;
    let answer = Hold::acquire(manager, Arc::clone(&claim)).await;
    wanted.guard(&claim, answer).inspect_err(refused)
}

pub(crate) fn obtain_blocking<F>(lock: Lock<F>, fenced: bool) -> Result<LockGuard, LockError> {
    let (manager, claim, wanted) = match lock.prepare(fenced).inspect_err(refused)? {
        Prepared::Joined(guard) => return Ok(guard),
        Prepared::ToAsk(manager, claim, wanted) => (manager, claim, wanted),
    };
    may_block()?;
    let answer = Hold::acquire_blocking(manager, Arc::clone(&claim));
    wanted.guard(&claim, answer).inspect_err(refused)
}

/// What to make of the server's answer.
struct Wanted {
    asked: Moment,
    renewed: bool,
    max_hold: Option<Duration>,
    on_lost: OnLost,
    message: Option<String>,
}

impl Wanted {
    fn guard(
        self,
        claim: &Claim,
        answer: Result<(Hold, Grant), Refusal>,
    ) -> Result<LockGuard, LockError> {
        let labels = &claim.labels;
        let error = match answer {
            Ok((hold, grant)) => {
                telemetry::acquired(labels, claim.listed(), self.asked);
                let limit = self.max_hold.map(|max_hold| grant.sent.after(max_hold));
                let renewal = match limit {
                    _ if !self.renewed => Renewal::Off,
                    Some(limit) => Renewal::Until(limit),
                    None => Renewal::On,
                };
                let held = Held::new(hold, grant, renewal)?;
                return Ok(LockGuard::owning(held, self.on_lost));
            }
            Err(Refusal::Busy { key, owner, left: retry_after, line }) => match line {
                Line::Outside => LockError::Busy { key, owner, retry_after, message: self.message },
                Line::Left(position) => {
                    let message = self.message;
                    LockError::TimedOut { key, owner, retry_after, position, message }
                }
                Line::Full => LockError::QueueFull { key },
            },
            Err(Refusal::Failed(error)) => error,
        };
        telemetry::refused(labels, claim.listed(), &error, self.asked);
        Err(error)
    }
}
