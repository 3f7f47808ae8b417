//! From the description of a lock to a guard, or to what the caller is told instead.

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
    fn prepare(self: Box<Self>, fenced: bool) -> Result<Prepared, LockError> {
        let lock = *self;
        lock.key.check()?;
        let several = in_order(&lock.key, &lock.more)?;
        let ttl = check_ttl(lock.ttl)?;
        let manager = lock.manager.map_or_else(LockManager::installed, Ok)?;
        let ours = |held: &Held| held.manager().is(&manager);
        if several.is_empty() {
            if let Some(held) = Scope::find(|held| ours(held) && held.nth(&lock.key).is_some()) {
                let nth = held.nth(&lock.key);
                return LockGuard::joining(held, nth, lock.on_lost).map(Prepared::Joined);
            }
        } else if let Some(held) = around(&several, ours)? {
            return LockGuard::joining(held, None, lock.on_lost).map(Prepared::Joined);
        }
        let token = Token::new(manager.label(), &lock.name, Moment::now())?;
        let template = lock.key.made_of();
        let first = several.first().cloned().unwrap_or(lock.key);
        let mut claim = Claim::new(first, token, ttl).with(several, lock.min_hold.min(ttl));
        claim.labels = Labels { name: lock.name, template };
        claim.fenced = fenced;
        claim.wait = lock.wait;
        let wanted = Wanted {
            renewed: lock.renewed.unwrap_or(true),
            max_hold: lock.max_hold,
            on_lost: lock.on_lost,
            message: lock.message.map(String::into_boxed_str),
        };
        Ok(Prepared::ToAsk(Hold::new(manager, claim), wanted))
    }
}

enum Prepared {
    Joined(LockGuard),
    ToAsk(Hold, Wanted),
}

/// The description is boxed: a future keeps the room of what it was given, and this one waits.
pub(crate) async fn obtain<F>(lock: Box<Lock<F>>, fenced: bool) -> Result<LockGuard, LockError> {
    let (mut hold, wanted) = match lock.prepare(fenced).inspect_err(refused)? {
        Prepared::Joined(guard) => return Ok(guard),
        Prepared::ToAsk(hold, wanted) => (hold, wanted),
    };
    inside_runtime()?;
    let answer = hold.acquire().await;
    wanted.guard(hold, answer).inspect_err(refused)
}

pub(crate) fn obtain_blocking<F>(lock: Lock<F>, fenced: bool) -> Result<LockGuard, LockError> {
    let (mut hold, wanted) = match Box::new(lock).prepare(fenced).inspect_err(refused)? {
        Prepared::Joined(guard) => return Ok(guard),
        Prepared::ToAsk(hold, wanted) => (hold, wanted),
    };
    may_block()?;
    let answer = hold.acquire_blocking();
    wanted.guard(hold, answer).inspect_err(refused)
}

/// What to make of the server's answer.
struct Wanted {
    renewed: bool,
    max_hold: Option<Duration>,
    on_lost: OnLost,
    message: Option<Box<str>>,
}

impl Wanted {
    fn guard(self, hold: Hold, answer: Result<Grant, Refusal>) -> Result<LockGuard, LockError> {
        let claim = hold.claim();
        let message = self.message.map(String::from);
        let error = match answer {
            Ok(grant) => {
                telemetry::acquired(&claim.labels, claim.listed(), claim.asked);
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
                Line::Outside => LockError::Busy { key, owner, retry_after, message },
                Line::Left(position) => {
                    LockError::TimedOut { key, owner, retry_after, position, message }
                }
                Line::Full => LockError::QueueFull { key },
            },
            Err(Refusal::Failed(error)) => error,
        };
        telemetry::refused(&claim.labels, claim.listed(), &error, claim.asked);
        Err(error)
    }
}
