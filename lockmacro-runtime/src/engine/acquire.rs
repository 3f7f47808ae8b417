//! Acquiring: from a [`LockSpec`] to a held lock, or to the error that the caller gets.

use std::pin::Pin;
use std::sync::{Arc, Once};
use std::task::{Context, Poll, ready};
use std::{iter, mem};

use crate::engine::acquire_future::Acquire;
use crate::engine::acquired::{Acquired, Outcome, Rare, Wanted};
use crate::engine::acquisition::{Acquisition, Refusal};
use crate::engine::asker::Asker;
use crate::engine::blocking::may_block;
use crate::engine::core::{Core, inside_runtime};
use crate::engine::current::Current;
use crate::engine::held::Held;
use crate::engine::in_line::{InLine, TakenUp};
use crate::engine::line::{Arrived, Line};
use crate::engine::observer::refused;
use crate::engine::reentry::{Scope, around};
use crate::engine::spec::LockSpec;
use crate::engine::unreported::{Errors, unreported};
use crate::protocol::answer::Grant;
use crate::protocol::request::Request;
use crate::value::defaults::check_ttl;
use crate::value::error::LockError;
use crate::value::holder::about;
use crate::value::key::LockKey;
use crate::value::key_set::{in_order, permit_before_exclusive};
use crate::value::time::wall_clock;
use crate::value::token::Token;

impl LockSpec {
    /// Checks the spec, fills in the manager's defaults, and looks for an outer lock to join. Sends
    /// nothing to a server.
    fn prepare(self, fenced: bool, errors: Errors) -> Result<Prepared, LockError> {
        self.key.check()?;
        self.more.iter().try_for_each(LockKey::check)?;
        let ttl = self.ttl.map(check_ttl).transpose()?;
        let manager = self.manager.map_or_else(Current::manager_here, Ok)?;
        // Before a lock around this one is looked for: a fork has copies of its parent's.
        let label = manager.label()?;
        let defaults = manager.defaults();
        defaults.usable()?;
        let ttl = ttl.unwrap_or(defaults.ttl());
        let wait = self.wait.unwrap_or(defaults.wait);
        let whole = |key: LockKey| key.under(&defaults.prefix);
        let more = self.more.into_iter().map(whole).collect::<Result<Vec<_>, _>>()?;
        let key = whole(self.key)?;
        let several = in_order(&key, &more)?;
        let key = if several.is_empty() { strictest(key, &more) } else { key };
        check_modes(&key, &more)?;
        warn_of_permits_first(&several);
        let ours = |held: &Held| held.manager().is(&manager);
        if several.is_empty() {
            if let Some(held) = Scope::find(|held| ours(held) && held.nth(&key).is_some()) {
                held.covers(&key)?;
                let nth = held.nth(&key);
                return Acquired::joining(held, nth, self.on_lost).map(Prepared::Joined);
            }
        } else if let Some(held) = around(&several, ours)? {
            several.iter().try_for_each(|key| held.covers(key))?;
            return Acquired::joining(held, None, self.on_lost).map(Prepared::Joined);
        }
        // The token of a waiter is older than its grant, so it does not show since when the lock is
        // held.
        let since = wait.is_zero().then(wall_clock);
        let about = about(since, self.holder_note.as_deref());
        let token = Token::draft(label, &self.name, &about);
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
        Ok(Prepared::ToAsk(manager, request, wanted))
    }
}

/// The key in the strictest of its modes. `others` are the same key.
fn strictest(key: LockKey, others: &[LockKey]) -> LockKey {
    let mode = others.iter().fold(key.mode(), |mode, other| mode.stricter(other.mode()));
    if mode == key.mode() { key } else { key.with_mode(mode) }
}

fn check_modes(key: &LockKey, more: &[LockKey]) -> Result<(), LockError> {
    let mut modes = iter::once(key).chain(more).map(LockKey::mode);
    let fault = modes.find_map(|mode| mode.fault().map(|detail| (mode.setting(), detail)));
    match fault {
        Some((setting, detail)) => Err(LockError::InvalidSetting { setting, detail }),
        None => Ok(()),
    }
}

/// Logs once that a permit may be held while another key is waited for.
fn warn_of_permits_first(several: &[LockKey]) {
    static LOGGED: Once = Once::new();
    if let Some(key) = permit_before_exclusive(several) {
        LOGGED.call_once(|| {
            tracing::warn!(
                %key,
                "a permit of this key may be held while an exclusive key of the same list is \
                 waited for, because a list is acquired in byte order: nest two functions instead"
            );
        });
    }
}

enum Prepared {
    Joined(Acquired),
    ToAsk(Arc<Core>, Request, Wanted),
}

/// The first state of a caller.
enum Start {
    /// The caller asks the store for itself.
    Asks(Acquisition, Asker),
    Waits(InLine),
    Refused(Request, Refusal),
}

/// Starts a caller at the line of its request's key.
fn start(manager: &Arc<Core>, request: Request) -> Start {
    let drawn = |mut request: Request, asker| match request.draw_token() {
        Ok(()) => Start::Asks(Acquisition::new(Arc::clone(manager), request), asker),
        Err(error) => Start::Refused(request, Refusal::Failed(error)),
    };
    if manager.store().excludes_nobody() {
        return drawn(request, Asker::outside());
    }
    if manager.shutdown().is_closed() {
        return Start::Refused(request, Refusal::Failed(LockError::ShutDown));
    }
    if let Err(error) = manager.store().check(&request) {
        return Start::Refused(request, Refusal::Failed(error));
    }
    // Those who share a key, or want several, have a token of their own at the store.
    if !request.several().is_empty() || !request.key.mode().is_exclusive() {
        return drawn(request, Asker::outside());
    }
    match Line::of_caller(manager, request) {
        // A waiter at several servers waits in the line from the beginning, as one acquisition has
        // to know all of its tokens.
        Arrived::Asks(place, request)
            if request.until.is_some() && manager.store().servers().are_several() =>
        {
            let draft = Arc::new(request);
            place.failed(Some(Arc::clone(&draft)));
            Start::Waits(InLine::new(place, Arc::clone(manager), draft))
        }
        Arrived::Asks(place, mut request) => {
            // The first request does not wait, as a free lock needs no queue.
            let asker = Asker::new(place, request.until.take());
            request.only_if_free = asker.waits_in_line();
            drawn(request, asker)
        }
        Arrived::Waits(place, draft) => {
            Start::Waits(InLine::new(place, Arc::clone(manager), draft))
        }
        Arrived::Refused(request, refusal) => Start::Refused(request, refusal),
        Arrived::Closed(request) => Start::Refused(request, Refusal::Failed(LockError::ShutDown)),
    }
}

/// Acquires a lock. Nothing happens before the first poll.
pub(crate) fn acquire(spec: Box<LockSpec>, fenced: bool, errors: Errors) -> Acquiring {
    Acquiring::Described { spec, fenced, errors }
}

/// Acquires a lock, and blocks the thread until the answer.
pub(crate) fn acquire_blocking(
    spec: Box<LockSpec>,
    fenced: bool,
    errors: Errors,
) -> Result<Acquired, LockError> {
    let name = spec.name.clone();
    let (manager, request, wanted) = match prepared(spec, fenced, errors)? {
        Prepared::Joined(guard) => return Ok(guard),
        Prepared::ToAsk(manager, request, wanted) => (manager, request, wanted),
    };
    may_block().inspect_err(|error| wanted.report(&request, error))?;
    let acquired = manager.background().block_on(async {
        match begun(&manager, request, wanted, true) {
            Ok(acquiring) => acquiring.await,
            Err(ended) => *ended,
        }
    });
    acquired.inspect_err(|error| failed(&name, errors, error))?
}

/// The future of [`acquire`]. Written by hand for the same reasons as [`Acquire`].
pub(crate) enum Acquiring {
    /// Boxed, as it is larger than the other states.
    Described {
        spec: Box<LockSpec>,
        fenced: bool,
        errors: Errors,
    },
    Asking(Acquire, Asker, Wanted),
    Waiting(InLine, Wanted),
    Over,
}

impl Future for Acquiring {
    type Output = Result<Acquired, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let next = match &mut *self {
                Acquiring::Described { .. } => Next::Start,
                Acquiring::Asking(acquire, asker, _) => match (acquire.poll(cx), asker) {
                    (Poll::Ready((acquisition, answer)), _) => {
                        Next::Answered(acquisition, Box::new(answer))
                    }
                    (Poll::Pending, asker) => {
                        ready!(asker.poll_over(acquire.asking(), cx));
                        Next::Unanswered
                    }
                },
                Acquiring::Waiting(in_line, _) => Next::Found(Box::new(ready!(in_line.poll(cx)))),
                Acquiring::Over => return Poll::Pending,
            };
            match (mem::replace(&mut *self, Acquiring::Over), next) {
                (Acquiring::Described { spec, fenced, errors }, _) => {
                    *self = match started(spec, fenced, errors) {
                        Ok(acquiring) => acquiring,
                        Err(joined) => return Poll::Ready(*joined),
                    };
                }
                (Acquiring::Asking(_, asker, wanted), Next::Answered(acquisition, answer)) => {
                    match answered(acquisition, asker, *answer) {
                        Ok(in_line) => *self = Acquiring::Waiting(in_line, wanted),
                        Err(ended) => return Poll::Ready(wanted.guard(*ended)),
                    }
                }
                (Acquiring::Asking(acquire, asker, wanted), _) => {
                    let waits = acquire.asking().and_then(|asked| asker.unanswered(asked));
                    drop(acquire);
                    if let Some(in_line) = waits {
                        *self = Acquiring::Waiting(in_line, wanted);
                    }
                }
                (Acquiring::Waiting(in_line, wanted), Next::Found(found)) => {
                    return Poll::Ready(wanted.guard(waited(&in_line, *found)));
                }
                _ => return Poll::Pending,
            }
        }
    }
}

/// The outcome of polling a state.
enum Next {
    Start,
    Answered(Acquisition, Box<Result<Grant, Refusal>>),
    /// The caller's own request takes too long.
    Unanswered,
    Found(Box<Result<TakenUp, Refusal>>),
}

/// Not inlined, so that later polls do not reserve its stack frame. `Err` ends the future with its
/// content, which is also how a joined lock is returned.
#[inline(never)]
fn started(
    spec: Box<LockSpec>,
    fenced: bool,
    errors: Errors,
) -> Result<Acquiring, Box<Result<Acquired, LockError>>> {
    let (manager, request, wanted) = match prepared(spec, fenced, errors) {
        Ok(Prepared::Joined(guard)) => return Err(Box::new(Ok(guard))),
        Ok(Prepared::ToAsk(manager, request, wanted)) => (manager, request, wanted),
        Err(error) => return Err(Box::new(Err(error))),
    };
    if let Err(error) = inside_runtime() {
        wanted.report(&request, &error);
        return Err(Box::new(Err(error)));
    }
    begun(&manager, request, wanted, false)
}

/// `blocks`: the caller blocks its thread.
fn begun(
    manager: &Arc<Core>,
    request: Request,
    wanted: Wanted,
    blocks: bool,
) -> Result<Acquiring, Box<Result<Acquired, LockError>>> {
    let (request, refusal) = match start(manager, request) {
        Start::Asks(acquisition, asker) => {
            let acquisition = if blocks { acquisition.blocking() } else { acquisition };
            match acquisition.acquire() {
                Ok(acquire) => return Ok(Acquiring::Asking(acquire, asker, wanted)),
                Err(refused) => (Arc::clone(refused.0.request()), refused.1),
            }
        }
        Start::Waits(in_line) => return Ok(Acquiring::Waiting(in_line, wanted)),
        Start::Refused(request, refusal) => (Arc::new(request), refusal),
    };
    let refused = Outcome::Refused(Arc::clone(manager), request, refusal);
    Err(Box::new(wanted.guard(refused)))
}

/// Handles the answer to a caller that has asked the store for itself. Returns the caller as a
/// waiter in the line, or the outcome of its request.
fn answered(
    acquisition: Acquisition,
    asker: Asker,
    answer: Result<Grant, Refusal>,
) -> Result<InLine, Box<Outcome>> {
    let refusal = match answer {
        Ok(grant) => return Err(Box::new(Outcome::Granted(acquisition, grant, asker))),
        Err(refusal) => refusal,
    };
    let waits = asker.refused(&acquisition, &refusal);
    waits.ok_or_else(|| {
        let (manager, request) = (acquisition.manager(), acquisition.request());
        Box::new(Outcome::Refused(Arc::clone(manager), Arc::clone(request), refusal))
    })
}

fn waited(in_line: &InLine, found: Result<TakenUp, Refusal>) -> Outcome {
    match found {
        Ok(taken_up) => Outcome::TakenUp(taken_up),
        Err(refusal) => {
            Outcome::Refused(Arc::clone(in_line.core()), Arc::clone(in_line.draft()), refusal)
        }
    }
}

/// Prepares the spec and reports its errors. Frees the box of the spec.
fn prepared(spec: Box<LockSpec>, fenced: bool, errors: Errors) -> Result<Prepared, LockError> {
    let name = spec.name.clone();
    spec.prepare(fenced, errors).inspect_err(|error| failed(&name, errors, error))
}

/// Reports an error that occurs before a lock is asked for.
fn failed(name: &str, errors: Errors, error: &LockError) {
    refused(error);
    if errors != Errors::Carried {
        unreported(name, &[], error);
    }
}
