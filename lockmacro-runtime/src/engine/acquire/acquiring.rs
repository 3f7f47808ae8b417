//! Acquiring: from a [`LockSpec`] to a held lock, or to the error that the caller gets.

use std::future::ready;
use std::pin::Pin;
use std::sync::{Arc, Once};
use std::task::{self, Context, Poll};
use std::time::Duration;
use std::{iter, mem};

use tokio::time::{sleep, timeout};

use crate::engine::acquire::outcome::{Acquired, Rare, Wanted};
use crate::engine::acquire::own_request::{Answered, OwnRequest};
use crate::engine::acquire::reentry::{Scope, around};
use crate::engine::acquire::spec::LockSpec;
use crate::engine::acquire::unreported::{Errors, unreported};
use crate::engine::blocking::may_block;
use crate::engine::cleanup::acquisition::{Acquisition, PAUSE, Refusal};
use crate::engine::core::inside_runtime;
use crate::engine::current::Current;
use crate::engine::lease::held::Held;
use crate::engine::manager::Manager;
use crate::engine::observer::refused;
use crate::engine::queue::shared_queue::in_queue::{Arrived, InQueue};
use crate::engine::queue::shared_queue::{SharedQueue, unanswered};
use crate::engine::queue::waiting::{Waited, Waiting, released};
use crate::engine::telemetry::WaitingGauge;
use crate::protocol::answer::{Answer, Asked, Failed, Grant};
use crate::protocol::request::Request;
use crate::value::applied::Applied;
use crate::value::defaults::check_ttl;
use crate::value::error::LockError;
use crate::value::holder::about;
use crate::value::key::LockKey;
use crate::value::key_set::{in_order, permit_before_exclusive};
use crate::value::time::{Moment, wall_clock};
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
        let defaults = &manager.defaults;
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
            blocks: false,
            is_again: false,
            is_behind: false,
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
                 waited for: nest two functions instead"
            );
        });
    }
}

/// Shortest of the longest times for the own request of a caller that waits.
const SHORTEST: Duration = Duration::from_millis(1);

enum Prepared {
    Joined(Acquired),
    ToAsk(Arc<Manager>, Request, Wanted),
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
    let (manager, request, mut wanted) = match prepared(spec, fenced, errors)? {
        Prepared::Joined(guard) => return Ok(guard),
        Prepared::ToAsk(manager, request, wanted) => (manager, request, wanted),
    };
    may_block().inspect_err(|error| wanted.report(&request, error))?;
    wanted.blocks = true;
    let acquired = manager.background.block_on(async {
        match start(&manager, request, wanted) {
            Ok(acquiring) => acquiring.await,
            Err(ended) => *ended,
        }
    });
    acquired.inspect_err(|error| failed(&name, errors, error))?
}

/// The future of [`acquire`]. Written by hand, as every waiter carries one: the future of an
/// `async fn` would keep its arguments as well, and has no type that can be named without a box.
pub(crate) enum Acquiring {
    /// Boxed, as it is larger than the other states.
    Described {
        spec: Box<LockSpec>,
        fenced: bool,
        errors: Errors,
    },
    /// A caller of no queue.
    Outside(Asked<'static, (Acquisition, Result<Grant, Refusal>)>, Wanted),
    /// The fields are dropped in this order: the request before the caller.
    Asking {
        asked: Asked<'static, Result<Answer, Failed>>,
        own: OwnRequest,
        wanted: Wanted,
    },
    Waiting(Waiting, Wanted),
    Over,
}

type Ended = Box<Result<Acquired, LockError>>;

impl Future for Acquiring {
    type Output = Result<Acquired, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let next = match &mut *self {
                Acquiring::Described { .. } => Next::Start,
                Acquiring::Outside(asked, _) => {
                    Next::Outside(Box::new(task::ready!(asked.as_mut().poll(cx))))
                }
                Acquiring::Asking { own, .. } if own.is_passed_over() => Next::PassedOver,
                Acquiring::Asking { asked, .. } => {
                    Next::Answered(Box::new(task::ready!(asked.as_mut().poll(cx))))
                }
                Acquiring::Waiting(waiting, _) => {
                    Next::Waited(Box::new(task::ready!(waiting.poll(cx))))
                }
                Acquiring::Over => return Poll::Pending,
            };
            *self = match mem::replace(&mut *self, Acquiring::Over).after(next) {
                Ok(acquiring) => acquiring,
                Err(ended) => return Poll::Ready(*ended),
            };
        }
    }
}

/// The outcome of polling a state.
enum Next {
    Start,
    Outside(Box<(Acquisition, Result<Grant, Refusal>)>),
    Answered(Box<Result<Answer, Failed>>),
    /// The queue has gone on with the token of the caller.
    PassedOver,
    Waited(Box<Waited>),
}

impl Acquiring {
    /// The state after this one, or the outcome. Not inlined, so that later polls do not reserve
    /// its stack frame.
    #[inline(never)]
    fn after(self, next: Next) -> Result<Self, Ended> {
        match (self, next) {
            (Acquiring::Described { spec, fenced, errors }, _) => {
                let (manager, request, wanted) = match prepared(spec, fenced, errors) {
                    Ok(Prepared::ToAsk(manager, request, wanted)) => (manager, request, wanted),
                    Ok(Prepared::Joined(guard)) => return Err(Box::new(Ok(guard))),
                    Err(error) => return Err(Box::new(Err(error))),
                };
                if let Err(error) = inside_runtime() {
                    wanted.report(&request, &error);
                    return Err(Box::new(Err(error)));
                }
                start(&manager, request, wanted)
            }
            (Acquiring::Outside(_, wanted), Next::Outside(outcome)) => {
                let (acquisition, answer) = *outcome;
                Err(Box::new(match answer {
                    Ok(grant) => match wanted.granted(acquisition, grant, None) {
                        Ok(Some(acquired)) => Ok(acquired),
                        Ok(None) => return Ok(Acquiring::Over),
                        Err(error) => Err(error),
                    },
                    Err(refusal) => {
                        let (manager, request) = (acquisition.manager(), acquisition.request());
                        wanted.refused(manager, request, refusal)
                    }
                }))
            }
            (Acquiring::Asking { asked, own, wanted }, next) => {
                drop(asked);
                let answered = match next {
                    Next::Answered(answer) => own.answered(*answer, &wanted),
                    _ => own.passed_over(),
                };
                match answered {
                    None => Ok(Acquiring::Over),
                    Some(Answered::Granted(acquisition, grant, caller)) => {
                        let request = Arc::clone(acquisition.request());
                        match wanted.granted(acquisition, grant, Some(caller.clone())) {
                            Ok(Some(acquired)) => Err(Box::new(Ok(acquired))),
                            Err(error) => Err(Box::new(Err(error))),
                            // The queue has gone on with the token.
                            Ok(None) => goes_on(caller, &request, wanted),
                        }
                    }
                    Some(Answered::GoesOn(caller, request)) => goes_on(caller, &request, wanted),
                    Some(Answered::Refused(caller, request, refusal)) => {
                        Err(Box::new(wanted.refused(&caller.queue.core, &request, refusal)))
                    }
                }
            }
            (Acquiring::Waiting(waiting, wanted), Next::Waited(waited)) => {
                let (queue, request) = (waiting.queue(), waiting.request());
                match *waited {
                    Waited::Lock(taken_up) => Err(Box::new(wanted.taken_up(taken_up, request))),
                    Waited::Refused(refusal) => {
                        Err(Box::new(wanted.refused(&queue.core, request, refusal)))
                    }
                    Waited::Arrived(arrived) => {
                        arrives(queue, Arc::clone(request), arrived, wanted)
                    }
                }
            }
            (_, _) => Ok(Acquiring::Over),
        }
    }
}

/// Starts a caller at the queue of its request's key.
fn start(manager: &Arc<Manager>, mut request: Request, wanted: Wanted) -> Result<Acquiring, Ended> {
    let is_open = || match manager.shutdown.is_closed() {
        true => Err(LockError::ShutDown),
        false => manager.store().servers().check_request(&request),
    };
    let excludes = !manager.store().excludes_nobody();
    let checked = if excludes { is_open() } else { Ok(()) };
    // Those who share a key, or want several, have a token of their own at the store.
    let has_queue = excludes && request.several().is_empty() && request.key.mode().is_exclusive();
    // The first request does not wait, as a free lock needs no queue.
    request.only_if_free = has_queue && request.until.is_some();
    let drawn = checked.and_then(|()| request.draw_token());
    let request = Arc::new(request);
    if let Err(error) = drawn {
        let refusal = Refusal::Failed(error);
        return Err(Box::new(wanted.refused(manager, &request, refusal)));
    }
    if has_queue {
        let queue = manager.queue(&request.key);
        let arrived = queue.arrive(&request, false, None);
        return arrives(&queue, request, arrived, wanted);
    }
    let acquisition = Acquisition::new(Arc::clone(manager), request, wanted.blocks);
    match acquisition.enter() {
        Ok(()) => {
            let asked = outside(Arc::clone(manager), acquisition);
            Ok(Acquiring::Outside(Box::pin(asked), wanted))
        }
        Err(error) => {
            let refusal = Refusal::Failed(error);
            Err(Box::new(wanted.refused(manager, acquisition.request(), refusal)))
        }
    }
}

/// Asks for a lock that belongs to no queue, as it is shared or has several keys.
async fn outside(
    manager: Arc<Manager>,
    mut own: Acquisition,
) -> (Acquisition, Result<Grant, Refusal>) {
    let mut releases = own.request().keys().len();
    loop {
        let answer = {
            let _waiting = WaitingGauge::new(Arc::clone(own.request()));
            own.store().acquire(own.request(), &manager.shutdown).await
        };
        if own.is_to_restart(&answer) {
            // After an error, dropping the replaced acquisition releases it in the background.
            _ = own.release_at(&own.store()).await;
            sleep(PAUSE).await;
        } else {
            let answered = own.take_answer(answer);
            let Err(Refusal::Contended { key, .. }) = &answered else { return (own, answered) };
            // A release of this process, which no caller waits for, may have been in flight.
            let asks_again = own.request().until.is_none() && releases > 0;
            if !asks_again || !released(&manager.queue(key), own.request().asked).await {
                return (own, answered);
            }
            releases -= 1;
        }
        if let Err(error) = own.renew_token() {
            return (own, Err(Refusal::Failed(error)));
        }
    }
}

/// A caller has arrived at its queue.
fn arrives(
    queue: &Arc<SharedQueue>,
    request: Arc<Request>,
    arrived: Arrived,
    mut wanted: Wanted,
) -> Result<Acquiring, Ended> {
    let caller = match arrived {
        Arrived::Asks(caller, is_behind) => {
            wanted.is_behind = is_behind;
            caller
        }
        Arrived::Waits(caller) => {
            let waiting = Waiting::new(Arc::clone(queue), Some(caller), &request);
            return Ok(Acquiring::Waiting(waiting, wanted));
        }
        Arrived::Undecided => {
            let waiting = Waiting::new(Arc::clone(queue), None, &request);
            return Ok(Acquiring::Waiting(waiting, wanted));
        }
        Arrived::Refused(refusal) => {
            return Err(Box::new(wanted.refused(&queue.core, &request, refusal)));
        }
    };
    let owner = Arc::clone(queue) as _;
    let acquisition = Acquisition::new(Arc::clone(&queue.core), request, wanted.blocks);
    let acquisition = acquisition.of_queue(owner);
    let request = Arc::clone(acquisition.request());
    let (store, entered) = (acquisition.store(), acquisition.enter());
    let own = OwnRequest::new(caller, acquisition);
    if let Err(error) = entered {
        let refusal = Refusal::Failed(error);
        return Err(Box::new(wanted.refused(&queue.core, &request, refusal)));
    }
    let servers = store.servers();
    let asked: Asked<_> = match request.until {
        // Of an attempt that ends early, several servers would have to be asked about its token
        // first. The queue's request has the time for an attempt.
        Some(_) if servers.are_several() => Box::pin(ready(in_vain(Applied::No))),
        Some(until) => {
            let asked = store.acquire(&request, &queue.core.shutdown);
            Box::pin(in_time(asked, until, servers.answer_time() * 2))
        }
        None => store.acquire(&request, &queue.core.shutdown),
    };
    Ok(Acquiring::Asking { asked, own, wanted })
}

/// The own request of a caller that waits until `until`, for no longer than `longest`. This is
/// longer than one answer may take, so that the store notices a server without an answer.
async fn in_time(
    asked: Asked<'static, Result<Answer, Failed>>,
    until: Moment,
    longest: Duration,
) -> Result<Answer, Failed> {
    let longest = longest.max(SHORTEST).min(until.since(Moment::now()));
    let answer = timeout(longest, asked).await;
    answer.unwrap_or_else(|_| in_vain(Applied::Unknown))
}

/// The caller has no answer, and waits in the queue.
fn in_vain(applied: Applied) -> Result<Answer, Failed> {
    Err(Failed { error: unanswered(), applied })
}

/// A caller asks no more itself: it waits, or arrives once more.
fn goes_on(caller: InQueue, request: &Arc<Request>, wanted: Wanted) -> Result<Acquiring, Ended> {
    if request.until.is_none() {
        return again(&caller.queue, request, wanted);
    }
    let waiting = Waiting::new(Arc::clone(&caller.queue), Some(caller), request);
    Ok(Acquiring::Waiting(waiting, wanted))
}

/// A caller that does not wait arrives once more.
fn again(
    queue: &Arc<SharedQueue>,
    request: &Arc<Request>,
    mut wanted: Wanted,
) -> Result<Acquiring, Ended> {
    wanted.is_again = true;
    match request.with_new_token() {
        Ok(request) => {
            let request = Arc::new(request);
            let arrived = queue.arrive(&request, true, None);
            arrives(queue, request, arrived, wanted)
        }
        Err(error) => {
            let refusal = Refusal::Failed(error);
            Err(Box::new(wanted.refused(&queue.core, request, refusal)))
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
