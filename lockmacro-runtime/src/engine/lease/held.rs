//! A granted lock: its acquisition and its lease. Long, because the ways in which it ends are read
//! together.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::engine::core::{Core, inside_runtime};
use crate::engine::manager::Manager;
use crate::engine::queue::shared_queue::in_queue::{HandedOver, InQueue, TakenUp};
use crate::engine::queue::shared_queue::{KeyTenure, LocalHolder, unanswered};
use crate::engine::thread::timers::Enrolled;
use crate::engine::token::acquisition::Acquisition;
use crate::engine::{current, telemetry};
use crate::protocol::answer::{Grant, Released};
use crate::protocol::lease::Lease;
use crate::protocol::request::Request;
use crate::store::handle::Store;
use crate::sys::random;
use crate::sys::sync::Mutex;
use crate::sys::task::spawn;
use crate::sys::time::{Moment, checked};
use crate::value::error::LockError;
use crate::value::fence::{Fence, FenceBlock, FenceCheck};
use crate::value::holder;
use crate::value::key::LockKey;
use crate::value::loss::{LossCause, Lost};
use crate::value::mode::Mode;
use crate::value::token::Token;

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
    pub(crate) request: Arc<Request>,
    state: Mutex<HeldState>,
    /// The lease was renewed, or lost.
    changed: Notify,
    /// A block for each key, if the request asked for fences. Its own fence is the first.
    fences: Vec<FenceBlock>,
    since: Moment,
    /// The label of this holder, where the token has the label of another one.
    label: Option<Token>,
    /// The manager scope in which it was acquired, for work that another task does for the body.
    pub(crate) scope: Option<Arc<Manager>>,
    /// The span of the body.
    pub(crate) span: tracing::Span,
}

/// What changes while a lock is held.
#[derive(Debug)]
struct HeldState {
    lease: Lease,
    /// What the process may pass on. Its end is that of the lease.
    tenure: KeyTenure,
    /// Number of renewals in flight.
    in_flight: u32,
    /// When a renewal was last found to be without an answer. The renewal may still be applied.
    unanswered_at: Option<Moment>,
    /// Number of confirmations in a row without an answer.
    unconfirmed: u32,
    /// A transaction may check the fence, also after the lock has ended. The store refuses a late
    /// one by its next grant, and a lock that is passed on has none.
    is_checked: bool,
    /// The loss was logged and counted.
    loss_reported: bool,
    /// It was logged that half of the lease has passed without a renewal.
    halved: bool,
    /// Present until the lock is released.
    counted: Option<telemetry::HeldGauge<Arc<Request>>>,
    renewal: Option<Enrolled>,
    /// The caller in its queue, from which the lock may be passed on.
    caller: Option<InQueue>,
    /// Present until the lock is passed on or released.
    acquisition: Option<Acquisition>,
}

impl HeldState {
    fn tenure(&self) -> KeyTenure {
        KeyTenure { ends: self.lease.ends(), ..self.tenure.clone() }
    }

    /// Whether the ttl on the store is uncertain: a renewal is in flight, or no renewal has
    /// succeeded that was sent after the last one without an answer.
    fn is_suspect(&self) -> bool {
        self.in_flight > 0 || self.unanswered_at >= Some(self.tenure.sent)
    }
}

impl Held {
    /// Makes a held lock of a lock that a waiter has taken up.
    pub(crate) fn taken_up(
        mut taken_up: TakenUp,
        waiter: &Request,
        renewed_until: impl FnOnce(Moment) -> Option<Moment>,
    ) -> Result<Arc<Self>, LockError> {
        let now = Moment::now();
        let mut tenure = taken_up.tenure.clone();
        let request =
            waiter.with_token_of(taken_up.acquisition.request(), tenure.kept_until, Moment::now());
        let acquisition = taken_up.acquisition.give_to(Arc::new(request));
        acquisition.request().granted(now);
        let lease = Lease::passed(now, tenure.ends, waiter.ttl, renewed_until(now));
        let due = lease.first_try(now, random::fraction());
        let fences = tenure.fences.filter(|_| waiter.fenced);
        tenure.fences = fences.map_or(tenure.fences, FenceBlock::rest);
        tenure.token = Arc::clone(acquisition.request());
        let fences = fences.into_iter().collect();
        let label = Some(waiter.token.clone());
        let held = Self::with(acquisition, lease, tenure, fences, now, label);
        held.begin(taken_up.by.take(), due)?.ok_or_else(unanswered)
    }

    /// Makes a held lock of a grant, and starts its renewal. `None` if the queue of `caller` has
    /// gone on with the token.
    pub(crate) fn new(
        acquisition: Acquisition,
        grant: Grant,
        renewed_until: Option<Moment>,
        caller: Option<InQueue>,
    ) -> Result<Option<Arc<Self>>, LockError> {
        let ttl = acquisition.request().ttl;
        let sent = grant.sent;
        let now = Moment::now();
        let is_handed_off = grant.ttl < ttl;
        let lease = Lease::new(sent, grant.ttl, ttl, renewed_until);
        // A lock that was handed off is confirmed while the body runs.
        let first =
            if is_handed_off { Some(now) } else { lease.first_try(sent, random::fraction()) };
        let tenure = KeyTenure {
            token: Arc::clone(acquisition.request()),
            began: now,
            sent,
            ends: lease.ends(),
            kept_until: now.after(grant.ttl),
            fences: grant.fences.first().copied().and_then(FenceBlock::rest),
        };
        let held = Self::with(acquisition, lease, tenure, grant.fences, sent, None);
        held.begin(caller, first)
    }

    fn with(
        acquisition: Acquisition,
        lease: Lease,
        tenure: KeyTenure,
        fences: Vec<FenceBlock>,
        since: Moment,
        label: Option<Token>,
    ) -> Arc<Self> {
        let request = Arc::clone(acquisition.request());
        let counted = telemetry::HeldGauge::new(Arc::clone(&request));
        Arc::new(Self {
            manager: Arc::clone(acquisition.manager()),
            state: Mutex::new(HeldState {
                lease,
                tenure,
                in_flight: 0,
                unanswered_at: None,
                unconfirmed: 0,
                is_checked: false,
                loss_reported: false,
                halved: false,
                counted: Some(counted),
                renewal: None,
                caller: None,
                acquisition: Some(acquisition),
            }),
            changed: Notify::new(),
            fences,
            since,
            label,
            scope: current::here(),
            span: telemetry::span(&request),
            request,
        })
    }

    /// Makes it known to the queue of `caller`, and starts its renewal. `None` if the queue has
    /// gone on with the token.
    fn begin(
        self: Arc<Self>,
        caller: Option<InQueue>,
        due: Option<Moment>,
    ) -> Result<Option<Arc<Self>>, LockError> {
        // Before the renewal, which may find the lock lost.
        if let Some(caller) = caller {
            // Before the queue knows the holder, because the queue uses the holder at once.
            self.state.lock().caller = Some(caller.clone());
            if !caller.granted(Arc::downgrade(&self) as _) {
                if let (_, Some(acquisition)) = self.leave() {
                    acquisition.forget();
                }
                return Ok(None);
            }
        }
        // The answer may have arrived after the end of the lease.
        let _ = self.check_lease();
        let sent = self.state.lock().tenure.sent;
        let renewal = self.manager.background.watch(Arc::downgrade(&self) as _, sent, due)?;
        self.state.lock().renewal = renewal;
        Ok(Some(self))
    }

    /// Takes out what a lock is passed on by, or released.
    fn leave(&self) -> (Option<InQueue>, Option<Acquisition>) {
        let mut state = self.state.lock();
        (state.caller.take(), state.acquisition.take())
    }

    /// Ends the renewal, and passes the lock on to the next waiter of this process, or to the store
    /// along with a request for the waiters. `None` if that was done before.
    fn pass_on(&self) -> Option<HandedOver> {
        self.end();
        self.hand_over()
    }

    fn hand_over(&self) -> Option<HandedOver> {
        let (caller, acquisition) = self.leave();
        let acquisition = acquisition?;
        let Some(caller) = caller else { return Some(HandedOver::Kept(acquisition)) };
        let (tenure, is_sure) = {
            let mut state = self.state.lock();
            let is_held = state.lease.remaining(Moment::now()).is_ok();
            (state.tenure(), is_held && !state.is_suspect() && !state.is_checked)
        };
        let may_pass = is_sure
            && self.request.keep(Moment::now()).is_zero()
            && !self.manager.has_changed_since(tenure.sent);
        // Called without the mutex, as the queue wakes the next caller.
        Some(caller.end(tenure, may_pass, acquisition))
    }

    /// Index 0 of a single key; `None` when there are several keys.
    pub(crate) fn only(&self) -> Option<u8> {
        (self.request.keys().len() == 1).then_some(0)
    }

    /// Index of `key` among the lock's keys. A lock has fewer than 256 keys.
    pub(crate) fn nth(&self, key: &LockKey) -> Option<u8> {
        let nth = self.request.keys().binary_search(key).ok()?;
        u8::try_from(nth).ok()
    }

    /// The same for a key without the manager's prefix.
    pub(crate) fn nth_named(&self, key: &LockKey) -> Option<u8> {
        self.nth(&key.clone().under(&self.manager.defaults.prefix).ok()?)
    }

    /// Checks that the holder may do under `key` what its mode needs.
    pub(crate) fn check_covers(&self, key: &LockKey) -> Result<(), LockError> {
        let keys = self.request.keys();
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
        let key = self.request.keys().get(usize::from(nth)).unwrap_or(&self.request.key);
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
        self.state.lock().is_checked = true;
        self.manager.store.backend.fence_check(key, fence).ok_or_else(|| {
            let detail = "the lock is not in PostgreSQL: compare the fence where the data is, or \
                          call the function `record_fence` of a database";
            LockError::invalid("fence_check", detail)
        })
    }

    /// How long the lock may still be relied on; an error once it is lost or released.
    pub(crate) fn check_lease(&self) -> Result<Duration, Lost> {
        let (remaining, is_news) = {
            let mut state = self.state.lock();
            match state.counted {
                Some(_) => {
                    let remaining = state.lease.remaining(Moment::now());
                    let is_lost = remaining.is_err();
                    (remaining, is_lost && !mem::replace(&mut state.loss_reported, true))
                }
                None => (Err(LossCause::Released), false),
            }
        };
        remaining.map_err(|cause| {
            let lost = Lost::of(self.request.listed(), cause);
            if is_news {
                // First: the code of a subscriber may panic.
                self.leave_queue(cause);
                telemetry::lost(&self.request, &lost);
            }
            lost
        })
    }

    /// Leaves the queue after a loss. If others wait, the lock is released along with the request
    /// for them, unless the body may still be protected by what is left of the lock.
    fn leave_queue(&self, cause: LossCause) {
        // A body on a blocked thread learns of the loss late. Until then the other nodes may keep
        // others out.
        let is_partly_held = cause == LossCause::Taken && self.manager.store.facts.are_several;
        let (caller, acquisition, tenure) = {
            let mut state = self.state.lock();
            let Some(caller) = state.caller.take() else { return };
            let acquisition = state.acquisition.take_if(|_| !is_partly_held);
            (caller, acquisition, state.tenure())
        };
        let Some(kept) = caller.lost(tenure, acquisition) else { return };
        let mut state = self.state.lock();
        // Else it was released meanwhile, by a thread that has found nothing to release.
        if state.counted.is_some() {
            state.acquisition = Some(kept);
        }
    }

    pub(crate) fn was_released(&self) -> bool {
        self.state.lock().counted.is_none()
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
        let outside = (!self.request.has_queue()).then(|| outside.join(&self.request));
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
            Ok(Released::NotHeld) if lost.is_none() => telemetry::released_late(&self.request),
            Err(error) if lost.is_none() => {
                let known = error.is_of_servers() && !self.manager.store.backend.is_news();
                telemetry::release_unconfirmed(&self.request, &error, known);
            }
            _ => {}
        }
    }

    /// Ends the renewal and releases the lock in the background.
    pub(crate) fn abandon(&self) {
        // Released in the background.
        drop(self.pass_on());
    }

    /// Ends the renewal and reports how the lock ended, on the first call only.
    fn end(&self) {
        if self.was_released() {
            return;
        }
        let renewal = self.state.lock().renewal.take();
        drop(renewal);
        // A last check of the lease, so that a loss is reported.
        let _ = self.check_lease();
        let counted = self.state.lock().counted.take();
        drop(counted);
        telemetry::released(&self.request, self.since);
        let held = self.since.elapsed() + self.request.keep(Moment::now());
        self.request.keys().iter().for_each(|key| self.manager.hold_times.note(key, held));
        self.changed.notify_waiters();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.hand_over());
    }
}

impl LocalHolder for Held {
    fn shown(&self) -> holder::Holder {
        self.label.as_ref().unwrap_or(&self.request.token).holder()
    }

    fn ends(&self) -> Moment {
        self.state.lock().lease.ends()
    }

    fn kept_until(&self) -> Moment {
        self.state.lock().tenure.kept_until
    }

    fn remaining_lease(&self) -> Option<Duration> {
        self.check_lease().ok()
    }
}
