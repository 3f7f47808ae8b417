//! A granted lock: the owner of its [`Life`], and of what the lock is passed on by, or released.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use scopeguard::{ScopeGuard, guard};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::engine::core::{Core, inside_runtime};
use crate::engine::lease::life::{
    CallKind, End, Ending, Life, LifeEffects, LifeEvent, Terms, kept_beyond,
};
use crate::engine::manager::Manager;
use crate::engine::queue::shared_queue::in_queue::{HandedOver, InQueue, TakenUp};
use crate::engine::queue::shared_queue::{LocalHolder, unanswered};
use crate::engine::thread::timers::Enrolled;
use crate::engine::token::acquisition::Acquisition;
use crate::engine::{current, telemetry};
use crate::protocol::answer::{Grant, Released};
use crate::protocol::ask::Ask;
use crate::protocol::request::Request;
use crate::store::handle::Store;
use crate::sys::random;
use crate::sys::sync::Mutex;
use crate::sys::task::spawn;
use crate::sys::time::{Moment, SharedMoment, checked};
use crate::value::error::LockError;
use crate::value::fence::{Fence, FenceBlock, FenceCheck};
use crate::value::holder;
use crate::value::key::LockKey;
use crate::value::loss::{LossCause, Lost};
use crate::value::mode::Mode;

mod renewal;

/// Longest time between two checks of a lease by [`Held::lost`].
const LEASE_CHECK: Duration = Duration::from_secs(5);
/// Most releases without an answer that no caller waits for. More of them make many callers slower:
/// each would have two commands in flight.
const TRAILING_MAX: usize = 64;

/// A granted lock. Dropping the last reference releases it in the background.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) manager: Arc<Core>,
    pub(crate) request: Request,
    state: Mutex<HeldState>,
    /// Until when a body may rely on the lock, which is looked at before each of its polls: a copy
    /// of [`Life::relied_until`], without the mutex.
    relied_until: SharedMoment,
    /// The lease was renewed, or lost.
    changed: Notify,
    /// A block for each key, if the request asked for fences. Its own fence is the first.
    fences: Vec<FenceBlock>,
    since: Moment,
    /// The manager scope in which it was acquired, for work that another task does for the body.
    pub(crate) scope: Option<Arc<Manager>>,
    /// The span of the body.
    pub(crate) span: tracing::Span,
}

/// What changes while a lock is held.
#[derive(Debug)]
struct HeldState {
    life: Life<Request>,
    /// Present until the lock is released.
    counted: Option<telemetry::HeldGauge<Arc<Ask>>>,
    renewal: Option<Enrolled>,
    /// The caller in its queue, from which the lock may be passed on.
    caller: Option<InQueue>,
    /// Present until the lock is passed on or released.
    acquisition: Option<Acquisition>,
}

/// A lock that leaves its holder.
struct Leaving {
    /// `None` if the queue was told of a loss before.
    end: Option<End<Request>>,
    caller: Option<InQueue>,
    acquisition: Option<Acquisition>,
}

impl Leaving {
    /// Tells the queue of a loss, and returns its cause. If others wait, the lock is released along
    /// with the request for them, unless something of it has to stay.
    fn tell_loss(&mut self) -> Option<LossCause> {
        let lost = |end: &mut End<_>| matches!(end.how, Ending::Lost { .. });
        let End { tenure, how: Ending::Lost { cause, stays } } = self.end.take_if(lost)? else {
            return None;
        };
        if let Some(caller) = self.caller.take() {
            let released = self.acquisition.take_if(|_| !stays);
            self.acquisition = caller.lost(tenure, released).or(self.acquisition.take());
        }
        Some(cause)
    }

    /// `None` if there is nothing to release.
    fn hand_over(self) -> Option<HandedOver> {
        let acquisition = self.acquisition?;
        Some(match (self.caller, self.end) {
            (Some(caller), Some(End { tenure, how })) => {
                caller.end(tenure, how == Ending::PassesOn, acquisition)
            }
            _ => HandedOver::Kept(acquisition),
        })
    }
}

impl Held {
    /// Makes a held lock of a lock that a waiter has taken up.
    pub(crate) fn taken_up(
        mut taken_up: TakenUp,
        waiter: &Arc<Ask>,
        renewed_until: impl FnOnce(Moment) -> Option<Moment>,
    ) -> Result<Arc<Self>, LockError> {
        let now = Moment::now();
        let mut tenure = taken_up.tenure.clone();
        let kept_until = kept_beyond(&tenure, waiter.ttl, now);
        let token = Arc::clone(&taken_up.acquisition.request().token);
        if let Some(end) = kept_until {
            token.note_kept_until(end);
        }
        let request = Request { ask: Arc::clone(waiter), token };
        request.note_granted(now);
        let acquisition = taken_up.acquisition.give_to(request.clone());
        let fences = tenure.fences.filter(|_| waiter.fenced);
        tenure.fences = fences.map_or(tenure.fences, FenceBlock::rest);
        tenure.token = request;
        let terms = terms(&acquisition, renewed_until(now));
        let life = Life::taken_up(tenure, terms, now, random::fraction());
        let fences = fences.into_iter().collect();
        let caller = taken_up.by.take();
        Self::begin(acquisition, life, caller, fences, now)?.ok_or_else(unanswered)
    }

    /// Makes a held lock of a grant, and starts its renewal. `None` if the queue of `caller` has
    /// gone on with the token.
    pub(crate) fn new(
        acquisition: Acquisition,
        grant: Grant,
        renewed_until: Option<Moment>,
        caller: Option<InQueue>,
    ) -> Result<Option<Arc<Self>>, LockError> {
        let Grant { sent, ttl, fences, .. } = grant;
        let token = acquisition.request().clone();
        let rest = fences.first().copied().and_then(FenceBlock::rest);
        let terms = terms(&acquisition, renewed_until);
        let life = Life::granted(token, sent, ttl, rest, terms, Moment::now(), random::fraction());
        Self::begin(acquisition, life, caller, fences, sent)
    }

    /// Makes it known to the queue of `caller`, and starts its renewal, which is due at the moment
    /// beside the life. `None` if the queue has gone on with the token.
    fn begin(
        acquisition: Acquisition,
        (life, due): (Life<Request>, Option<Moment>),
        caller: Option<InQueue>,
        fences: Vec<FenceBlock>,
        since: Moment,
    ) -> Result<Option<Arc<Self>>, LockError> {
        let request = acquisition.request().clone();
        let sent = life.sent();
        let relied_until = SharedMoment::new(life.relied_until());
        let held = Arc::new(Self {
            manager: Arc::clone(acquisition.manager()),
            state: Mutex::new(HeldState {
                life,
                counted: Some(telemetry::HeldGauge::new(Arc::clone(&request.ask))),
                renewal: None,
                // Before the queue knows the holder, because the queue uses the holder at once.
                caller: caller.clone(),
                acquisition: Some(acquisition),
            }),
            relied_until,
            changed: Notify::new(),
            fences,
            since,
            scope: current::here(),
            span: telemetry::span(&request.ask),
            request,
        });
        // Before the renewal, which may find the lock lost.
        if let Some(caller) = caller
            && !caller.granted(Arc::downgrade(&held) as _)
        {
            let acquisition = {
                let mut state = held.state.lock();
                drop(state.caller.take());
                state.acquisition.take()
            };
            acquisition.into_iter().for_each(Acquisition::forget);
            return Ok(None);
        }
        // The answer may have arrived after the end of the lease.
        let _ = held.check_lease();
        let renewal = held.manager.background.watch(Arc::downgrade(&held) as _, sent, due)?;
        held.state.lock().renewal = renewal;
        Ok(Some(held))
    }

    /// Tells the life of an event, and carries out what follows for the queue and for those that
    /// wait for a loss.
    fn on(&self, event: LifeEvent) -> LifeEffects<Request> {
        let (effects, leaving) = {
            let mut state = self.state.lock();
            let mut effects = state.life.on(event, Moment::now());
            self.relied_until.set(state.life.relied_until());
            // Under the mutex: a cleanup that begins now has to cover it, and each time that it is
            // sent again.
            if let Some(sent) = effects.send
                && sent.kind == CallKind::Extension
            {
                self.request.token.note_kept_until(self.extended_again_until(sent).after(sent.ttl));
            }
            let leaving = effects.end.take().map(|end| {
                let caller = state.caller.take();
                let frees = caller.is_some() && end.frees();
                let acquisition = state.acquisition.take_if(|_| frees);
                Leaving { end: Some(end), caller, acquisition }
            });
            (effects, leaving)
        };
        let cause = leaving.and_then(|mut leaving| {
            let cause = leaving.tell_loss();
            if let Some(kept) = leaving.acquisition {
                let mut state = self.state.lock();
                // Else it was released meanwhile, by a thread that has found nothing to release.
                if !state.life.is_over() {
                    state.acquisition = Some(kept);
                }
            }
            cause
        });
        if effects.wakes {
            self.changed.notify_waiters();
        }
        // Last: the code of a subscriber may panic.
        self.report_loss(cause);
        effects
    }

    fn report_loss(&self, cause: Option<LossCause>) {
        if let Some(cause) = cause {
            telemetry::lost(&self.request.ask, &Lost::of(self.request.ask.listed(), cause));
        }
    }

    /// Ends the renewal, reports how the lock ended, and passes it on to the next waiter of this
    /// process, or to the store along with a request for the waiters. `None` if that was done
    /// before.
    fn pass_on(&self) -> Option<HandedOver> {
        if self.was_released() {
            return None;
        }
        let (end, caller, acquisition, renewal, counted, held) = {
            let mut state = self.state.lock();
            // Under the mutex, so that no earlier event has a later time.
            let now = Moment::now();
            let stays_for = self.request.token.stays_for(now);
            let stays = !stays_for.is_zero();
            let effects = state.life.on(LifeEvent::Ends { stays }, now);
            if !effects.is_over {
                return None;
            }
            self.relied_until.set(state.life.relied_until());
            let caller = state.caller.take();
            let acquisition = state.acquisition.take();
            let held = now.since(self.since) + stays_for;
            (effects.end, caller, acquisition, state.renewal.take(), state.counted.take(), held)
        };
        // Handed over also if the code of a subscriber panics.
        let leaving = Leaving { end, caller, acquisition };
        let mut leaving = guard(leaving, |leaving| drop(leaving.hand_over()));
        drop(renewal);
        let cause = leaving.tell_loss();
        self.changed.notify_waiters();
        self.report_loss(cause);
        drop(counted);
        telemetry::released(&self.request.ask, self.since);
        self.request.ask.keys().iter().for_each(|key| self.manager.hold_times.note(key, held));
        ScopeGuard::into_inner(leaving).hand_over()
    }

    /// Index 0 of a single key; `None` when there are several keys.
    pub(crate) fn only(&self) -> Option<u8> {
        (self.request.ask.keys().len() == 1).then_some(0)
    }

    /// Index of `key` among the lock's keys. A lock has fewer than 256 keys.
    pub(crate) fn nth(&self, key: &LockKey) -> Option<u8> {
        let nth = self.request.ask.keys().binary_search(key).ok()?;
        u8::try_from(nth).ok()
    }

    /// The same for a key without the manager's prefix.
    pub(crate) fn nth_named(&self, key: &LockKey) -> Option<u8> {
        self.nth(&key.clone().under(&self.manager.defaults.prefix).ok()?)
    }

    /// Checks that the holder may do under `key` what its mode needs.
    pub(crate) fn check_covers(&self, key: &LockKey) -> Result<(), LockError> {
        let keys = self.request.ask.keys();
        let own = self.nth(key).and_then(|nth| keys.get(usize::from(nth)));
        if own.is_none_or(|own| own.mode().covers(key.mode())) {
            return Ok(());
        }
        let why = "and not exclusively. A held lock does not change its mode: release it first, or \
                   acquire it exclusively around the body";
        Err(LockError::nested(key, why))
    }

    /// Checks that the lock has a fence for `key`, which a caller that joins it asks for.
    pub(crate) fn check_fence(&self, key: &LockKey) -> Result<(), LockError> {
        if self.nth(key).and_then(|nth| self.fence(nth)).is_some() {
            return Ok(());
        }
        Err(LockError::nested(key, "without a fence: request it there"))
    }

    pub(crate) fn fence(&self, nth: u8) -> Option<Fence> {
        self.fences.get(usize::from(nth)).copied().map(FenceBlock::first)
    }

    /// The check of a key's fence in a transaction, where a late writer is sure to be refused by
    /// it.
    pub(crate) fn fence_check(&self, nth: u8) -> Result<FenceCheck, LockError> {
        let key = self.request.ask.keys().get(usize::from(nth)).unwrap_or(&self.request.ask.key);
        let refuse = |setting, detail: &str| {
            let detail = format!("the lock on `{}` {detail}", key.shown());
            Err(LockError::invalid(setting, detail))
        };
        if key.mode() != Mode::Exclusive {
            let setting = if key.mode() == Mode::Shared { "shared" } else { "permits" };
            let detail = "has other holders beside this one, and the check would let only the last \
                          of them write";
            return refuse(setting, detail);
        }
        let Some(fence) = self.fence(nth) else {
            let detail = "was acquired without one: write `fence = fence` in the attribute, or \
                          `Lock::fenced` by hand";
            return refuse("fence", detail);
        };
        let noted = self.state.lock().life.note_fence_check();
        noted.map_err(|cause| Lost::of(self.request.ask.listed(), cause))?;
        self.manager.store.backend.fence_check(key, fence).ok_or_else(|| {
            let detail = "the lock is not in PostgreSQL: compare the fence where the data is, or \
                          `CALL` the procedure `record_fence` of a database";
            LockError::invalid("fence_check", detail)
        })
    }

    /// How long the lock may still be relied on; an error once it is lost or released.
    pub(crate) fn check_lease(&self) -> Result<Duration, Lost> {
        let now = Moment::now();
        if let Some(until) = self.relied_until.get()
            && now < until
        {
            return Ok(until.since(now));
        }
        let left = self.on(LifeEvent::Time).left;
        left.map_err(|cause| Lost::of(self.request.ask.listed(), cause))
    }

    pub(crate) fn was_released(&self) -> bool {
        self.relied_until.get().is_none()
    }

    /// Waits until the lock is lost.
    pub(crate) async fn lost(&self) -> Lost {
        loop {
            // Before the check, so that no change between the two is missed.
            let changed = self.changed.notified();
            let remaining = match self.check_lease() {
                Ok(remaining) => remaining,
                Err(lost) => return lost,
            };
            // A guard that a plain thread acquired may be used without a tokio timer.
            if Handle::try_current().is_ok() {
                // The timer only starts the next check: it stops while the machine is suspended,
                // and the lease does not.
                let _ = timeout(checked(remaining, LEASE_CHECK), changed).await;
            } else {
                changed.await;
            }
        }
    }

    /// Ends the renewal and releases the lock.
    pub(crate) async fn release(&self) -> Result<Released, LockError> {
        if inside_runtime().is_ok() {
            return self.release_at(&self.manager.store).await;
        }
        // A lock acquired by a plain thread may be released on another executor than tokio.
        let background = &self.manager.background;
        background.inside(self.release_at(&background.store)).await?
    }

    /// The same for blocking callers.
    pub(crate) fn release_blocking(&self) -> Result<Released, LockError> {
        let background = &self.manager.background;
        background.block_on(self.release_at(&background.store))?
    }

    /// The same through this connection to the store.
    async fn release_at(&self, store: &Store) -> Result<Released, LockError> {
        match self.pass_on() {
            Some(HandedOver::Kept(mut acquisition)) => acquisition.release_at(store).await,
            Some(HandedOver::Released(reported)) => {
                reported.await.unwrap_or(Ok(Released::Unconfirmed))
            }
            Some(HandedOver::Passed) => Ok(Released::Held),
            // Released along with a request, after a loss.
            None => Ok(Released::NotHeld),
        }
    }

    /// Ends the renewal, and sends the release without waiting for its answer. A release that fails
    /// is repeated like that of a dropped lock.
    pub(crate) async fn release_in_background(self: &Arc<Self>) {
        let lost = self.check_lease().err();
        let Some(HandedOver::Kept(mut acquisition)) = self.pass_on() else { return };
        if inside_runtime().is_err() {
            // Released by the background thread.
            return drop(acquisition);
        }
        let all = &self.manager.trailing;
        let outside = &self.manager.trailing_outside;
        let outside = (!self.request.ask.has_queue()).then(|| outside.join(&self.request));
        let held = Arc::clone(self);
        let trailing = (all.join(), outside);
        // Sent from the caller's task, so that the caller's next command on this connection is sent
        // after it.
        let mut sent = Box::pin(async move {
            let released = acquisition.release_at(&held.manager.store).await;
            held.report_release(released, lost.as_ref());
            drop(trailing);
        });
        if all.count() > TRAILING_MAX {
            return sent.await;
        }
        if (&mut sent).now_or_never().is_none() {
            spawn(sent);
            // The caller may keep this thread busy. Then another worker thread writes the command.
            // Without another worker, the command is written before the caller goes on.
            if Handle::current().metrics().num_workers() == 1 {
                yield_now().await;
            }
        }
    }

    /// Logs the outcome of a release, because no caller gets it.
    pub(crate) fn report_release(
        &self,
        released: Result<Released, LockError>,
        lost: Option<&Lost>,
    ) {
        match released {
            Ok(Released::NotHeld) if lost.is_none() => telemetry::released_late(&self.request.ask),
            Err(error) if lost.is_none() => {
                let known = error.is_of_servers() && !self.manager.store.backend.is_news();
                telemetry::release_unconfirmed(&self.request.ask, &error, known);
            }
            _ => {}
        }
    }

    /// Ends the renewal and releases the lock in the background.
    pub(crate) fn abandon(&self) {
        // Released in the background.
        drop(self.pass_on());
    }
}

/// Only a lock that was never held by a body has something left here.
impl Drop for Held {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let Some(acquisition) = state.acquisition.take() else { return };
        let caller = state.caller.take();
        let now = Moment::now();
        let stays = !self.request.token.stays_for(now).is_zero();
        let end = state.life.on(LifeEvent::Ends { stays }, now).end;
        drop(Leaving { end, caller, acquisition: Some(acquisition) }.hand_over());
    }
}

/// The terms of a lock that is held from now on.
fn terms(acquisition: &Acquisition, renewed_until: Option<Moment>) -> Terms {
    let ttl = acquisition.request().ask.ttl;
    let has_several_nodes = acquisition.manager().store.facts.are_several;
    Terms { ttl, renewed_until, has_several_nodes }
}

impl LocalHolder for Held {
    fn shown(&self) -> holder::Holder {
        self.request.ask.holder()
    }

    fn ends(&self) -> Moment {
        self.state.lock().life.ends()
    }

    fn kept_until(&self) -> Moment {
        self.state.lock().life.kept_until()
    }

    fn remaining_lease(&self) -> Option<Duration> {
        self.check_lease().ok()
    }
}

#[cfg(test)]
mod tests {
    use crate::sys::sync::entries;
    use crate::{Lock, LockError, LockManager};

    #[tokio::test]
    async fn a_free_lock_enters_its_mutex_twice() {
        let locks = LockManager::isolated_memory();
        let order = Lock::new("order").manager(&locks);
        for _ in 0..2 {
            entries::take();
            let body = async { Ok::<_, LockError>(()) };
            order.run(body).await.unwrap();
            let all = entries::take();
            let entries = all.iter().filter(|(name, _)| name.ends_with("HeldState"));
            assert_eq!(entries.map(|(_, times)| times).sum::<usize>(), 2, "{all:#?}");
        }
    }
}
