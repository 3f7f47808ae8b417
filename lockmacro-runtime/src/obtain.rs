//! From the description of a lock to a guard, or to what the caller is told instead.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use crate::LockManager;
use crate::backend::{Claim, Grant, Line};
use crate::blocking::may_block;
use crate::clock::Moment;
#[cfg(feature = "defer")]
use crate::defer::refused;
use crate::driver::Errors;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::held::Held;
use crate::hold::{Hold, Refusal};
use crate::holder::{Holder, about};
use crate::key::LockKey;
use crate::lease::{Renewal, check_ttl};
use crate::lock::LockSpec;
use crate::loss::OnLost;
use crate::manager::inside_runtime;
use crate::many::{around, in_order};
use crate::outcome::unreported;
use crate::scope::Scope;
use crate::telemetry::{self, Labels};
use crate::token::Token;

/// Nobody runs deferred calls.
#[cfg(not(feature = "defer"))]
fn refused(_: &LockError) {}

impl LockSpec {
    /// Does everything that can be done without a server.
    fn prepare(self, fenced: bool, errors: Errors) -> Result<Prepared, LockError> {
        self.key.check()?;
        self.more.iter().try_for_each(LockKey::check)?;
        let ttl = self.ttl.map(check_ttl).transpose()?;
        let manager = self.manager.map_or_else(LockManager::installed, Ok)?;
        let defaults = manager.defaults();
        defaults.usable()?;
        let ttl = ttl.unwrap_or(defaults.ttl());
        let wait = self.wait.unwrap_or(defaults.wait());
        let whole = |key: LockKey| key.under(defaults.prefix());
        let more = self.more.into_iter().map(whole).collect::<Result<Vec<_>, _>>()?;
        let key = whole(self.key)?;
        let several = in_order(&key, &more)?;
        let ours = |held: &Held| held.manager().is(&manager);
        if several.is_empty() {
            if let Some(held) = Scope::find(|held| ours(held) && held.nth(&key).is_some()) {
                let nth = held.nth(&key);
                return LockGuard::joining(held, nth, self.on_lost).map(Prepared::Joined);
            }
        } else if let Some(held) = around(&several, ours)? {
            return LockGuard::joining(held, None, self.on_lost).map(Prepared::Joined);
        }
        // A token of a waiter is older than its grant.
        let since = wait.is_zero().then(SystemTime::now);
        let about = about(since, self.holder_note.as_deref());
        let token = Token::new(&manager.label(), &self.name, &about, Moment::now())?;
        let template = key.made_of();
        let first = several.first().cloned().unwrap_or(key);
        let mut claim = Claim::new(first, token, ttl).with(several, self.min_hold.min(ttl));
        claim.labels = Labels { name: self.name, template };
        claim.fenced = fenced;
        claim.wait = Some(wait).filter(|wait| !wait.is_zero());
        let wanted = Wanted {
            renewed: self.renewed.unwrap_or(true),
            max_hold: self.max_hold,
            on_lost: self.on_lost,
            message: self.message,
            errors,
        };
        Ok(Prepared::ToAsk(Hold::new(manager, claim), wanted))
    }
}

enum Prepared {
    Joined(LockGuard),
    ToAsk(Hold, Wanted),
}

/// The description is boxed: a future keeps the room of what it was given, and this one waits.
pub(crate) async fn obtain(
    spec: Box<LockSpec>,
    fenced: bool,
    errors: Errors,
) -> Result<LockGuard, LockError> {
    let (mut hold, wanted) = match prepared(spec, fenced, errors)? {
        Prepared::Joined(guard) => return Ok(guard),
        Prepared::ToAsk(hold, wanted) => (hold, wanted),
    };
    inside_runtime().inspect_err(|error| wanted.report(&hold, error))?;
    let answer = hold.acquire().await;
    wanted.guard(hold, answer).inspect_err(refused)
}

pub(crate) fn obtain_blocking(
    spec: Box<LockSpec>,
    fenced: bool,
    errors: Errors,
) -> Result<LockGuard, LockError> {
    let (mut hold, wanted) = match prepared(spec, fenced, errors)? {
        Prepared::Joined(guard) => return Ok(guard),
        Prepared::ToAsk(hold, wanted) => (hold, wanted),
    };
    may_block().inspect_err(|error| wanted.report(&hold, error))?;
    let answer = hold.acquire_blocking();
    wanted.guard(hold, answer).inspect_err(refused)
}

/// The description's box ends with this.
fn prepared(spec: Box<LockSpec>, fenced: bool, errors: Errors) -> Result<Prepared, LockError> {
    let name = spec.name.clone();
    let prepared = spec.prepare(fenced, errors).inspect_err(refused);
    prepared.inspect_err(|error| {
        if errors != Errors::Carried {
            unreported(&name, &[], error);
        }
    })
}

/// What to make of the server's answer.
struct Wanted {
    renewed: bool,
    max_hold: Option<Duration>,
    on_lost: OnLost,
    message: Option<Cow<'static, str>>,
    errors: Errors,
}

impl Wanted {
    fn guard(self, hold: Hold, answer: Result<Grant, Refusal>) -> Result<LockGuard, LockError> {
        let claim = hold.claim();
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
            Err(Refusal::Busy { key, owner, left, line }) => {
                let retry = |before| hold.manager().retry_after(&key, before, left);
                let holder = || Box::new(Holder::of(owner, left));
                // Made here, so that a free lock allocates nothing for it.
                let message = self.message.as_deref().map(str::to_owned);
                match line {
                    Line::Outside => {
                        let (retry_after, holder) = (retry(0), holder());
                        LockError::Busy { key, holder, retry_after, message }
                    }
                    Line::Left(position) => {
                        let (retry_after, holder) = (retry(position), holder());
                        LockError::TimedOut { key, holder, retry_after, position, message }
                    }
                    Line::Full => LockError::QueueFull { retry_after: retry(u32::MAX), key },
                }
            }
            Err(Refusal::Failed(error)) => error,
        };
        let known = error.is_of_servers() && !hold.manager().backend().call_failed(&error);
        telemetry::refused(&claim.labels, claim.listed(), &error, claim.asked, known);
        self.report(&hold, &error);
        Err(error)
    }

    /// Reports an error that the caller's return type cannot carry.
    fn report(&self, hold: &Hold, error: &LockError) {
        if self.errors != Errors::Carried {
            let claim = hold.claim();
            unreported(&claim.labels.name, claim.keys(), error);
        }
    }
}
