//! A granted lock: its acquisition and its lease. Long, because the ways in which it ends are read
//! together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::engine::cleanup::acquisition::Acquisition;
use crate::engine::core::{Core, inside_runtime};
use crate::engine::current::Current;
use crate::engine::lease::renewals::Enrolled;
#[cfg(feature = "test-util")]
use crate::engine::lease::renewals::Renewable;
use crate::engine::lease::tenure_state::TenureState;
use crate::engine::queue::holder::Holder;
use crate::engine::queue::shared_queue::in_queue::{Ended, InQueue, TakenUp};
use crate::engine::queue::shared_queue::{Question, Tenure};
use crate::engine::telemetry;
use crate::protocol::answer::{Grant, Released};
use crate::protocol::lease::Lease;
use crate::protocol::request::Request;
use crate::store::dispatch::Store;
use crate::value::error::LockError;
use crate::value::fence::{Fence, FenceBlock};
use crate::value::holder;
use crate::value::key::LockKey;
use crate::value::loss::{LossCause, Lost};
use crate::value::random;
use crate::value::sync::{Mutex, MutexGuard};
use crate::value::task::spawn;
use crate::value::time::{Moment, checked};

/// Longest time between two checks of a lease by [`Held::lost`].
const LEASE_CHECK: Duration = Duration::from_secs(5);

/// A granted lock. Dropping the last reference releases it in the background.
#[derive(Debug)]
pub(crate) struct Held {
    /// Dropped first: no renewal is sent after the release.
    renewal: Mutex<Option<Enrolled>>,
    pub(crate) acquisition: Acquisition,
    lease: Mutex<Lease>,
    /// The lease was renewed, or lost.
    pub(crate) changed: Notify,
    /// A block for each key, if the request asked for fences. Its own fence is the first.
    fences: Vec<FenceBlock>,
    released: AtomicBool,
    /// The loss was logged and counted.
    loss_reported: AtomicBool,
    /// It was logged that half of the lease has passed without a renewal.
    pub(crate) halved: AtomicBool,
    since: Moment,
    /// The caller in its queue, from which the lock may be passed on.
    caller: Mutex<Option<InQueue>>,
    pub(crate) tenure_state: TenureState,
    /// The manager scope in which it was acquired, for work that another task does for the body.
    current: Current,
    /// The span of the body.
    span: tracing::Span,
    counted: Mutex<Option<telemetry::HeldGauge<Arc<Request>>>>,
}

impl Held {
    /// Makes a held lock of a lock that a waiter has taken up.
    pub(crate) fn taken_up(
        mut taken_up: TakenUp,
        waiter: &Request,
        renewed_until: impl FnOnce(Moment) -> Option<Moment>,
    ) -> Result<Arc<Self>, LockError> {
        let (now, tenure) = (Moment::now(), taken_up.tenure.clone());
        let request = waiter.with_token_of(taken_up.acquisition.request(), tenure.kept_until);
        let acquisition = taken_up.acquisition.give_to(Arc::new(request));
        acquisition.request().granted(now);
        let lease = Lease::passed(now, tenure.ends, waiter.ttl, renewed_until(now));
        let due = lease.first_try(now, random::fraction());
        let fences = tenure.fences.filter(|_| waiter.fenced);
        let mut tenure_state = TenureState::new(tenure.began, tenure.sent, tenure.kept_until);
        tenure_state.fences = fences.map_or(tenure.fences, FenceBlock::rest);
        tenure_state.label = Some(waiter.token.clone());
        let fences = fences.into_iter().collect();
        let held = Self::with(acquisition, lease, fences, now, tenure_state);
        let caller = taken_up.by.take();
        // Set before the queue knows the holder, because the queue uses the holder at once.
        held.caller.lock().clone_from(&caller);
        if let Some(caller) = caller {
            caller.held_by(Arc::downgrade(&held) as _);
        }
        let _ = held.remaining();
        held.watched(tenure.sent, due)
    }

    /// Makes a held lock of a grant, and starts its renewal.
    pub(crate) fn new(
        acquisition: Acquisition,
        grant: Grant,
        renewed_until: Option<Moment>,
        caller: Option<InQueue>,
    ) -> Result<Option<Arc<Self>>, LockError> {
        let ttl = acquisition.request().ttl;
        let (sent, now) = (grant.sent, Moment::now());
        let is_handed_off = grant.ttl < ttl;
        let lease = Lease::new(sent, grant.ttl, ttl, renewed_until);
        // A lock that was handed off is confirmed while the body runs.
        let first = match is_handed_off {
            true => Some(now),
            false => lease.first_try(sent, random::fraction()),
        };
        let mut tenure_state = TenureState::new(now, sent, now.after(grant.ttl));
        tenure_state.fences = grant.fences.first().copied().and_then(FenceBlock::rest);
        let held = Self::with(acquisition, lease, grant.fences, sent, tenure_state);
        // Done before the renewal, which may find the lock lost.
        if let Some(caller) = caller {
            *held.caller.lock() = Some(caller.clone());
            if !caller.granted(Arc::downgrade(&held) as _) {
                // The queue has gone on with the token.
                held.caller.lock().take();
                held.acquisition.forget();
                return Ok(None);
            }
        }
        // The answer may have arrived after the end of the lease.
        let _ = held.remaining();
        held.watched(sent, first).map(Some)
    }

    fn with(
        acquisition: Acquisition,
        lease: Lease,
        fences: Vec<FenceBlock>,
        since: Moment,
        tenure_state: TenureState,
    ) -> Arc<Self> {
        let counted = telemetry::HeldGauge::new(Arc::clone(acquisition.request()));
        let span = telemetry::span(acquisition.request());
        Arc::new(Self {
            renewal: Mutex::new(None),
            acquisition,
            lease: Mutex::new(lease),
            changed: Notify::new(),
            fences,
            released: AtomicBool::new(false),
            loss_reported: AtomicBool::new(false),
            halved: AtomicBool::new(false),
            since,
            caller: Mutex::default(),
            tenure_state,
            current: Current::here(),
            span,
            counted: Mutex::new(Some(counted)),
        })
    }

    /// Starts the renewal. `sent`: when the last answered request was sent.
    fn watched(self: Arc<Self>, sent: Moment, due: Option<Moment>) -> Result<Arc<Self>, LockError> {
        let watched = self.manager().background.watch(Arc::downgrade(&self) as _, sent, due)?;
        *self.renewal.lock() = watched;
        Ok(self)
    }

    /// Ends the renewal, and passes the lock on to the next waiter of this process, or to the store
    /// along with a request for the waiters.
    pub(crate) fn pass_on(&self) -> Ended {
        self.end();
        let (caller, acquisition) = (self.caller.lock().take(), self.acquisition.give_away());
        // Called without the mutex, as the queue wakes the next caller.
        match caller {
            Some(caller) => {
                let (tenure, may_pass) = self.tenure();
                caller.ends(tenure, may_pass, acquisition)
            }
            None => Ended::Kept(acquisition),
        }
    }

    /// The tenure for the next holder, and whether the lock may be passed on.
    pub(crate) fn tenure(&self) -> (Tenure, bool) {
        let (state, sent) = (&self.tenure_state, self.tenure_state.sent());
        // Before the lease: a renewal that finds the lock taken marks the lease, and is answered.
        let is_suspect = state.is_suspect()
            || self.manager().has_changed_since(sent)
            || !self.request().keep().is_zero();
        let (is_held, ends) = {
            let mut lease = self.lease();
            (lease.remaining(Moment::now()).is_ok(), lease.ends())
        };
        let (began, fences, kept_until) = (state.began, state.fences, state.kept_until());
        let token = Question::of(self.acquisition.request());
        (Tenure { token, began, sent, ends, kept_until, fences }, is_held && !is_suspect)
    }

    pub(crate) fn manager(&self) -> &Arc<Core> {
        self.acquisition.manager()
    }

    pub(crate) fn request(&self) -> &Request {
        self.acquisition.request()
    }

    /// Index 0 of a single key; `None` when there are several keys.
    pub(crate) fn only(&self) -> Option<u8> {
        (self.request().keys().len() == 1).then_some(0)
    }

    /// Index of `key` among the lock's keys. A lock has fewer than 256 keys.
    pub(crate) fn nth(&self, key: &LockKey) -> Option<u8> {
        let nth = self.request().keys().binary_search(key).ok()?;
        u8::try_from(nth).ok()
    }

    /// The same for a key without the manager's prefix.
    pub(crate) fn nth_named(&self, key: &LockKey) -> Option<u8> {
        match &*self.manager().defaults.prefix {
            "" => self.nth(key),
            prefix => self.nth(&key.clone().under(prefix).ok()?),
        }
    }

    /// Checks that the holder may do under `key` what its mode needs.
    pub(crate) fn covers(&self, key: &LockKey) -> Result<(), LockError> {
        let keys = self.request().keys();
        let own = self.nth(key).and_then(|nth| keys.get(usize::from(nth)));
        match own.is_none_or(|own| own.mode().covers(key.mode())) {
            true => Ok(()),
            false => Err(LockError::HeldShared { key: key.clone() }),
        }
    }

    pub(crate) fn current(&self) -> &Current {
        &self.current
    }

    pub(crate) fn span(&self) -> &tracing::Span {
        &self.span
    }

    pub(crate) fn fence(&self, nth: u8) -> Option<Fence> {
        self.fences.get(usize::from(nth)).copied().map(FenceBlock::first)
    }

    /// How long the lock may still be relied on; an error once it is lost or released.
    pub(crate) fn remaining(&self) -> Result<Duration, Lost> {
        let remaining = if self.was_released() {
            Err(LossCause::Released)
        } else {
            self.lease().remaining(Moment::now())
        };
        remaining.map_err(|cause| {
            let lost = Lost::of(self.request().listed(), cause);
            if cause != LossCause::Released && !self.loss_reported.swap(true, Ordering::AcqRel) {
                // First: the code of a subscriber may panic.
                self.leaves_queue(cause);
                telemetry::lost(self.request(), &lost);
            }
            lost
        })
    }

    /// Leaves the queue after a loss. If others wait, the lock is released along with the request
    /// for them, unless the body may still be protected by what is left of the lock.
    fn leaves_queue(&self, cause: LossCause) {
        let Some(caller) = self.caller.lock().take() else { return };
        // A body on a blocked thread learns of the loss late. Until then the other nodes may keep
        // others out.
        let is_partly_held =
            cause == LossCause::Taken && self.manager().store().servers().are_several();
        let acquisition = (!is_partly_held).then(|| self.acquisition.give_away());
        if let Some(kept) = caller.lost(self.tenure().0, acquisition) {
            self.acquisition.take_back(&kept);
        }
    }

    pub(crate) fn was_released(&self) -> bool {
        self.released.load(Ordering::SeqCst)
    }

    /// Waits until the lock is lost.
    pub(crate) async fn lost(&self) -> Lost {
        loop {
            // Registered before the check, so that no change between the two is missed.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let remaining = match self.remaining() {
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
        self.release_at(None).await
    }

    /// The same for blocking callers.
    pub(crate) fn release_blocking(&self) -> Result<Released, LockError> {
        let background = &self.manager().background;
        background.block_on(self.release_at(Some(&background.store())))?
    }

    /// The same through this connection to the store, or else through that of the caller.
    async fn release_at(&self, store: Option<&Store>) -> Result<Released, LockError> {
        match (self.pass_on(), store) {
            (Ended::Passed, _) => Ok(Released::Held),
            (Ended::Released(reported), _) => reported.await.unwrap_or(Ok(Released::Unconfirmed)),
            (Ended::Kept(acquisition), Some(store)) => acquisition.release_at(store).await,
            (Ended::Kept(acquisition), None) => acquisition.release().await,
        }
    }

    /// Ends the renewal, and sends the release without waiting for its answer. A release that fails
    /// is repeated like that of a dropped lock.
    pub(crate) async fn release_in_background(self: &Arc<Self>) {
        let lost = self.remaining().err();
        let Ended::Kept(acquisition) = self.pass_on() else { return };
        if inside_runtime().is_err() {
            // Released by the background thread.
            return drop(acquisition);
        }
        let held = Arc::clone(self);
        // Sent from the caller's task, so that the caller's next command on this connection is sent
        // after it.
        let mut sent = Box::pin(async move {
            let released = acquisition.release_at(held.manager().store()).await;
            held.report_release(released, lost.as_ref());
        });
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
            _ if lost.is_some() => {}
            Ok(Released::Held | Released::Unconfirmed) => {}
            Ok(Released::NotHeld) => telemetry::released_late(self.request()),
            Err(error) => {
                let known = error.is_of_servers() && !self.manager().store().servers().is_news();
                telemetry::release_unconfirmed(self.request(), &error, known);
            }
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
        self.renewal.lock().take();
        // A last check of the lease, so that a loss is reported.
        let _ = self.remaining();
        // `SeqCst`, for one order with the renewals that count as in flight.
        self.released.store(true, Ordering::SeqCst);
        self.counted.lock().take();
        telemetry::released(self.request(), self.since);
        let held = self.since.elapsed() + self.request().keep();
        self.request().keys().iter().for_each(|key| self.manager().hold_times.note(key, held));
        self.changed.notify_waiters();
    }

    pub(crate) fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(caller) = self.caller.lock().take() {
            drop(caller.ends(self.tenure().0, false, self.acquisition.give_away()));
        }
    }
}

impl Holder for Held {
    fn shown(&self) -> holder::Holder {
        self.tenure_state.label.as_ref().unwrap_or(&self.request().token).holder()
    }

    fn ends(&self) -> Moment {
        self.lease().ends()
    }

    fn kept_until(&self) -> Moment {
        self.tenure_state.kept_until()
    }

    fn lasts(&self) -> Option<Duration> {
        self.remaining().ok()
    }

    #[cfg(feature = "test-util")]
    fn is_forgotten(&self) {
        // The same as a loss that a renewal finds.
        Renewable::answered(self, false, Moment::now(), Duration::ZERO);
    }
}
