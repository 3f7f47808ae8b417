//! Acquiring: from a [`LockSpec`] to a held lock, or to the error that the caller gets.

use std::borrow::Cow;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use crate::engine::acquisition::{Acquire, Acquisition, Refusal};
use crate::engine::blocking::may_block;
use crate::engine::core::inside_runtime;
use crate::engine::current::Current;
use crate::engine::held::Held;
use crate::engine::observer::refused;
use crate::engine::reentry::{Scope, around};
use crate::engine::spec::LockSpec;
use crate::engine::telemetry;
use crate::engine::unreported::{Errors, unreported};
use crate::protocol::answer::{Grant, Queueing};
use crate::protocol::lease::Renewal;
use crate::protocol::request::Request;
use crate::value::error::LockError;
use crate::value::holder::{Holder, about};
use crate::value::key::LockKey;
use crate::value::key_set::in_order;
use crate::value::labels::Labelled;
use crate::value::limits::check_ttl;
use crate::value::loss::OnLost;
use crate::value::token::Token;

/// A lock that was acquired, or joined. A guard is made of it.
pub(crate) struct Acquired {
    pub(crate) held: Arc<Held>,
    /// Index of the guard's key among the lock's keys; `None` for all of several.
    pub(crate) nth: Option<u8>,
    pub(crate) on_lost: OnLost,
    /// The value of a body does not wait for the release.
    pub(crate) releases_in_background: bool,
    /// The lock belongs to an outer guard, which releases it.
    pub(crate) joined: bool,
}

impl Acquired {
    fn owning(held: Arc<Held>, on_lost: OnLost, releases_in_background: bool) -> Self {
        Self { nth: held.only(), held, on_lost, releases_in_background, joined: false }
    }

    /// Joins a held lock, for the `nth` of its keys or for all; an error when the lock is lost.
    fn joining(held: Arc<Held>, nth: Option<u8>, on_lost: OnLost) -> Result<Self, LockError> {
        held.remaining()?;
        Ok(Self { held, nth, on_lost, releases_in_background: false, joined: true })
    }
}

impl LockSpec {
    /// Checks the spec, fills in the manager's defaults, and looks for an outer lock to join.
    /// Asks no server.
    fn prepare(self, fenced: bool, errors: Errors) -> Result<Prepared, LockError> {
        self.key.check()?;
        self.more.iter().try_for_each(LockKey::check)?;
        let ttl = self.ttl.map(check_ttl).transpose()?;
        let manager = self.manager.map_or_else(Current::manager_here, Ok)?;
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
                return Acquired::joining(held, nth, self.on_lost).map(Prepared::Joined);
            }
        } else if let Some(held) = around(&several, ours)? {
            return Acquired::joining(held, None, self.on_lost).map(Prepared::Joined);
        }
        // A waiter's token is older than its grant, and so cannot say since when it holds.
        let since = wait.is_zero().then(SystemTime::now);
        let about = about(since, self.holder_note.as_deref());
        let token = Token::new(&manager.label(), &self.name, &about)?;
        let (first, given) = match several.first() {
            Some(first) => (first.clone(), Some(key)),
            None => (key, None),
        };
        let mut request =
            Request::new(first, token, ttl).with(several, given, self.min_hold.min(ttl));
        request.name = self.name;
        request.fenced = fenced;
        request.until = (!wait.is_zero()).then(|| request.asked.after(wait));
        let wanted = Wanted {
            renewed: self.renewed.unwrap_or(true),
            on_lost: self.on_lost,
            releases_in_background: self.releases_in_background,
            errors,
            rare: Rare::of(self.max_hold, self.message),
        };
        Ok(Prepared::ToAsk(Acquisition::new(manager, request), wanted))
    }
}

enum Prepared {
    Joined(Acquired),
    ToAsk(Acquisition, Wanted),
}

/// Acquires a lock. Nothing happens before the first poll.
pub(crate) fn acquire(spec: Box<LockSpec>, fenced: bool, errors: Errors) -> Acquiring {
    Acquiring::Described { spec, fenced, errors }
}

/// The future of [`acquire`]. Written by hand for the same reasons as [`Acquire`].
pub(crate) enum Acquiring {
    /// Boxed, as it is larger than the other states.
    Described {
        spec: Box<LockSpec>,
        fenced: bool,
        errors: Errors,
    },
    Started(Acquire, Wanted),
    Over,
}

impl Future for Acquiring {
    type Output = Result<Acquired, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let answer = match &mut *self {
                Acquiring::Described { .. } => None,
                Acquiring::Started(acquire, _) => Some(ready!(acquire.poll(cx))),
                Acquiring::Over => return Poll::Pending,
            };
            match (mem::replace(&mut *self, Acquiring::Over), answer) {
                (Acquiring::Described { spec, fenced, errors }, _) => {
                    match begun(spec, fenced, errors) {
                        Ok(Begun::Joined(guard)) => return Poll::Ready(Ok(guard)),
                        Ok(Begun::Acquiring(acquire, wanted)) => {
                            *self = Acquiring::Started(acquire, wanted);
                        }
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
                (Acquiring::Started(_, wanted), Some((acquisition, answer))) => {
                    return Poll::Ready(wanted.guard(acquisition, answer).inspect_err(refused));
                }
                _ => return Poll::Pending,
            }
        }
    }
}

/// Result of the first poll.
enum Begun {
    Joined(Acquired),
    Acquiring(Acquire, Wanted),
}

/// Not inlined, so that later polls do not reserve its stack frame.
#[inline(never)]
fn begun(spec: Box<LockSpec>, fenced: bool, errors: Errors) -> Result<Begun, LockError> {
    let (acquisition, wanted) = match prepared(spec, fenced, errors)? {
        Prepared::Joined(guard) => return Ok(Begun::Joined(guard)),
        Prepared::ToAsk(acquisition, wanted) => (acquisition, wanted),
    };
    inside_runtime().inspect_err(|error| wanted.report(&acquisition, error))?;
    match acquisition.acquire() {
        Ok(acquire) => Ok(Begun::Acquiring(acquire, wanted)),
        Err((acquisition, refusal)) => {
            wanted.guard(acquisition, Err(refusal)).inspect_err(refused).map(Begun::Joined)
        }
    }
}

pub(crate) fn acquire_blocking(
    spec: Box<LockSpec>,
    fenced: bool,
    errors: Errors,
) -> Result<Acquired, LockError> {
    let (mut acquisition, wanted) = match prepared(spec, fenced, errors)? {
        Prepared::Joined(guard) => return Ok(guard),
        Prepared::ToAsk(acquisition, wanted) => (acquisition, wanted),
    };
    may_block().inspect_err(|error| wanted.report(&acquisition, error))?;
    let answer = acquisition.acquire_blocking();
    wanted.guard(acquisition, answer).inspect_err(refused)
}

/// Prepares the spec and reports its errors. Frees the box of the spec.
fn prepared(spec: Box<LockSpec>, fenced: bool, errors: Errors) -> Result<Prepared, LockError> {
    let name = spec.name.clone();
    let prepared = spec.prepare(fenced, errors).inspect_err(refused);
    prepared.inspect_err(|error| {
        if errors != Errors::Carried {
            unreported(&name, &[], error);
        }
    })
}

/// What the engine makes of the server's answer.
pub(crate) struct Wanted {
    renewed: bool,
    on_lost: OnLost,
    releases_in_background: bool,
    errors: Errors,
    rare: Option<Box<Rare>>,
}

/// What most locks do not have. Boxed, to keep waiters small.
struct Rare {
    max_hold: Option<Duration>,
    message: Option<Cow<'static, str>>,
}

impl Rare {
    fn of(max_hold: Option<Duration>, message: Option<Cow<'static, str>>) -> Option<Box<Self>> {
        let is_any = max_hold.is_some() || message.is_some();
        is_any.then(|| Box::new(Self { max_hold, message }))
    }
}

impl Wanted {
    fn guard(
        self,
        acquisition: Acquisition,
        answer: Result<Grant, Refusal>,
    ) -> Result<Acquired, LockError> {
        let request = acquisition.request();
        let error = match answer {
            Ok(grant) => {
                telemetry::acquired(request.labels(), request.listed(), request.asked);
                let max_hold = self.rare.as_ref().and_then(|rare| rare.max_hold);
                let limit = max_hold.map(|max_hold| grant.sent.after(max_hold));
                let renewal = match limit {
                    _ if !self.renewed => Renewal::Off,
                    Some(limit) => Renewal::Until(limit),
                    None => Renewal::On,
                };
                let held = Held::new(acquisition, grant, renewal)?;
                return Ok(Acquired::owning(held, self.on_lost, self.releases_in_background));
            }
            Err(Refusal::Contended { key, holder, queue }) => {
                let left = holder.left;
                let retry = |before| acquisition.manager().retry_after(&key, before, left);
                let holder = || Box::new(Holder::from(holder));
                // Made here, so that an uncontended lock allocates nothing for it.
                let message = self.rare.as_ref().and_then(|rare| rare.message.as_deref());
                let message = message.map(str::to_owned);
                match queue {
                    Queueing::Outside => {
                        let (retry_after, holder) = (retry(0), holder());
                        LockError::Busy { key, holder, retry_after, message }
                    }
                    Queueing::Left(rank) => {
                        let (retry_after, holder) = (retry(rank), holder());
                        LockError::TimedOut { key, holder, retry_after, rank, message }
                    }
                    Queueing::Full => LockError::QueueFull { retry_after: retry(u32::MAX), key },
                }
            }
            Err(Refusal::Failed(error)) => error,
        };
        let known =
            error.is_of_servers() && !acquisition.manager().store().servers().call_failed(&error);
        telemetry::refused(request.labels(), request.listed(), &error, request.asked, known);
        self.report(&acquisition, &error);
        Err(error)
    }

    /// Reports an error that the caller's return type cannot carry.
    fn report(&self, acquisition: &Acquisition, error: &LockError) {
        if self.errors != Errors::Carried {
            let request = acquisition.request();
            unreported(&request.name, request.keys(), error);
        }
    }
}
