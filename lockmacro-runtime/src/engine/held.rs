//! A granted lock: its acquisition and its lease.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::engine::acquisition::Acquisition;
use crate::engine::core::{Core, inside_runtime};
use crate::engine::current::Current;
use crate::engine::in_flight::InFlightGuard;
use crate::engine::renewal::{Enrolled, Renewable};
use crate::engine::telemetry;
use crate::protocol::answer::{Grant, Released};
use crate::protocol::lease::{Lease, Renewal};
use crate::protocol::request::Request;
use crate::store::dispatch::Store;
use crate::value::error::LockError;
use crate::value::fence::{Fence, Fences};
use crate::value::key::LockKey;
use crate::value::labels::Labelled;
use crate::value::loss::{LossCause, Lost};
use crate::value::sync::{Mutex, MutexGuard};
use crate::value::time::Moment;

/// Longest time between two checks of a lease by [`Held::lost`].
const LEASE_CHECK: Duration = Duration::from_secs(5);

/// A granted lock. Dropping the last reference releases it in the background.
#[derive(Debug)]
pub(crate) struct Held {
    /// Dropped first: no renewal is sent after the release.
    renewal: Mutex<Option<Enrolled>>,
    acquisition: Acquisition,
    lease: Mutex<Lease>,
    /// The lease was renewed, or lost.
    changed: Notify,
    /// One for each key, if the request asked for fences.
    fences: Fences,
    released: AtomicBool,
    /// The loss was logged and counted.
    loss_reported: AtomicBool,
    /// It was logged that half of the lease has passed without a renewal.
    halved: AtomicBool,
    since: Moment,
    /// The manager scope in which it was acquired, for work that another task does for the body.
    current: Current,
    /// The span of the body.
    span: tracing::Span,
    counted: Mutex<Option<telemetry::HeldGauge<Arc<Request>>>>,
}

impl Held {
    /// Makes a held lock of a grant, and starts its renewal.
    pub(crate) fn new(
        acquisition: Acquisition,
        grant: Grant,
        renewal: Renewal,
    ) -> Result<Arc<Self>, LockError> {
        let ttl = acquisition.request().ttl;
        let lease = Lease::handed_off(grant.sent, grant.ttl, ttl, renewal);
        let counted = telemetry::HeldGauge::of(acquisition.request());
        let span = telemetry::span(acquisition.request().labels(), acquisition.request().listed());
        let first = if grant.ttl < ttl {
            // A lock that was handed off is confirmed while the body runs.
            Some(Moment::now())
        } else {
            lease.first_try(grant.sent, fastrand::f64())
        };
        let held = Arc::new(Self {
            renewal: Mutex::new(None),
            acquisition,
            lease: Mutex::new(lease),
            changed: Notify::new(),
            fences: grant.fences,
            released: AtomicBool::new(false),
            loss_reported: AtomicBool::new(false),
            halved: AtomicBool::new(false),
            since: grant.sent,
            current: Current::here(),
            span,
            counted: Mutex::new(Some(counted)),
        });
        let watched =
            held.manager().background().watch(Arc::downgrade(&held) as _, grant.sent, first)?;
        *held.renewal.lock() = watched;
        Ok(held)
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
        match self.manager().defaults().prefix() {
            "" => self.nth(key),
            prefix => self.nth(&key.clone().under(prefix).ok()?),
        }
    }

    pub(crate) fn current(&self) -> &Current {
        &self.current
    }

    pub(crate) fn span(&self) -> &tracing::Span {
        &self.span
    }

    pub(crate) fn fence(&self, nth: u8) -> Option<Fence> {
        self.fences.iter().nth(nth.into())
    }

    /// How long the lock may still be relied on; an error once it is lost or released.
    pub(crate) fn remaining(&self) -> Result<Duration, Lost> {
        let remaining = if self.was_released() {
            Err(LossCause::Released)
        } else {
            self.lease().remaining(Moment::now())
        };
        remaining.map_err(|cause| {
            let lost = Lost::new(self.request().listed(), cause);
            if cause != LossCause::Released && !self.loss_reported.swap(true, Ordering::AcqRel) {
                if matches!(cause, LossCause::NotRenewed | LossCause::Taken) {
                    self.manager().store().servers().lock_lost(self.request());
                }
                telemetry::lost(self.request().labels(), &lost);
            }
            lost
        })
    }

    pub(crate) fn was_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    /// Waits until the lock is lost.
    pub(crate) async fn lost(&self) -> Lost {
        loop {
            // Registered before the check, so that no change in between is missed.
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
                let _ = timeout(remaining.min(LEASE_CHECK), changed).await;
            } else {
                changed.await;
            }
        }
    }

    /// Renews the lease for `ttl` from now on, on the caller's runtime.
    pub(crate) async fn extend(&self, ttl: Duration) -> Result<(), LockError> {
        self.remaining()?;
        inside_runtime()?;
        let (ttl, sent) = (self.allowed(ttl), Moment::now());
        self.request().renewed_until(sent.after(ttl));
        let store = self.manager().store();
        let held = store.renew_acknowledged(self.request(), ttl, self.request().ttl / 3).await?;
        self.answered(held, sent, ttl);
        self.remaining().map(drop).map_err(LockError::from)
    }

    /// Ends the renewal and releases the lock.
    pub(crate) async fn release(&self) -> Result<Released, LockError> {
        self.end();
        self.acquisition.release().await
    }

    pub(crate) fn release_blocking(&self) -> Result<Released, LockError> {
        self.end();
        self.acquisition.release_blocking()
    }

    /// Ends the renewal, and sends the release without waiting for its answer. A release that fails
    /// is repeated like that of a dropped lock.
    pub(crate) async fn release_in_background(self: &Arc<Self>) {
        if inside_runtime().is_err() {
            return self.release_by_thread();
        }
        let Some(release) = BackgroundRelease::of(self) else { return };
        let store = Arc::clone(self.manager().shared_store());
        // Sent from here: what the caller sends next on this connection comes after it.
        let mut sent = Box::pin(release.send(store));
        if (&mut sent).now_or_never().is_none() {
            tokio::spawn(sent);
            // The caller may keep this thread busy. Then another worker writes the command; where
            // there is none, it is written before the caller goes on.
            if Handle::current().metrics().num_workers() == 1 {
                yield_now().await;
            }
        }
    }

    /// The same for blocking callers: the background thread sends the release.
    pub(crate) fn release_by_thread(self: &Arc<Self>) {
        if let Some(release) = BackgroundRelease::of(self) {
            // Cloned: a job that cannot be started must not be the last to drop it, because the
            // cleanup wants the mutex of the thread.
            let sent = Arc::clone(&release);
            self.manager().background().spawn(|store| sent.send(store));
        }
    }

    /// Logs the outcome of a release, because no caller gets it.
    pub(crate) fn report_release(
        &self,
        released: Result<Released, LockError>,
        lost: Option<&Lost>,
    ) {
        let (key, labels) = (self.request().listed(), self.request().labels());
        match released {
            _ if lost.is_some() => {}
            Ok(Released::Held | Released::Unconfirmed) => {}
            Ok(Released::NotHeld) => telemetry::released_late(labels, key),
            Err(error) => {
                let known =
                    error.is_of_servers() && !self.manager().store().servers().call_failed(&error);
                telemetry::release_unconfirmed(labels, key, &error, known);
            }
        }
    }

    /// Ends the renewal and releases the lock in the background.
    pub(crate) fn abandon(&self) {
        self.end();
        self.acquisition.abandon();
    }

    /// Ends the renewal and reports how the lock ended, once.
    fn end(&self) {
        if self.was_released() {
            return;
        }
        self.renewal.lock().take();
        // A last check of the lease, so that a loss is reported.
        let _ = self.remaining();
        self.released.store(true, Ordering::Release);
        self.counted.lock().take();
        telemetry::released(self.request().labels(), self.since);
        let held = self.since.elapsed() + self.request().keep();
        self.request().keys().iter().for_each(|key| self.manager().note_held(key, held));
        self.changed.notify_waiters();
    }

    fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock()
    }
}

/// A release that no caller waits for. Dropped without an answer, it leaves the lock to the
/// cleanup.
struct BackgroundRelease {
    held: Arc<Held>,
    lost: Option<Lost>,
    /// Callers that find the lock busy wait until these are dropped.
    in_flight: Mutex<Vec<InFlightGuard>>,
}

impl BackgroundRelease {
    /// Ends the renewal; `None` in a forked process, which does not hold the lock.
    fn of(held: &Arc<Held>) -> Option<Arc<Self>> {
        let lost = held.remaining().err();
        held.end();
        if held.acquisition.is_a_copy() {
            return None;
        }
        let in_flight = Mutex::new(held.manager().releasing().join(held.request().keys()));
        Some(Arc::new(Self { held: Arc::clone(held), lost, in_flight }))
    }

    async fn send(self: Arc<Self>, store: Arc<Store>) {
        let released = self.held.acquisition.release_at(&store).await;
        if released.is_ok() {
            drop(mem::take(&mut *self.in_flight.lock()));
        }
        self.held.report_release(released, self.lost.as_ref());
    }
}

impl Drop for BackgroundRelease {
    fn drop(&mut self) {
        self.held.acquisition.abandon_with(mem::take(&mut *self.in_flight.lock()));
    }
}

impl Renewable for Held {
    fn request(&self) -> &Request {
        self.acquisition.request()
    }

    fn wants_renewal(&self) -> bool {
        self.lease().wants_renewal()
    }

    fn keeps(&self, now: Moment) -> Option<Duration> {
        self.lease().keeps(now)
    }

    fn allowed(&self, ttl: Duration) -> Duration {
        self.lease().allowed(ttl, Moment::now())
    }

    fn answered(&self, held: bool, sent: Moment, ttl: Duration) -> Option<Moment> {
        let next = {
            let mut lease = self.lease();
            if held {
                self.halved.store(false, Ordering::Release);
                let renewed = lease.renewed(sent, ttl, Moment::now());
                renewed.ok().and_then(|_| lease.first_try(sent, fastrand::f64()))
            } else {
                // A lease that was over before is reported as expired rather than taken.
                let _ = lease.remaining(Moment::now());
                lease.taken();
                None
            }
        };
        // Reports a loss at once, however long the body runs.
        let _ = self.remaining();
        self.changed.notify_waiters();
        next
    }

    fn unanswered(&self) -> Option<Moment> {
        if self.remaining().is_err() {
            self.changed.notify_waiters();
            return None;
        }
        Some(self.lease().next_try(Moment::now()))
    }

    fn is_halved(&self) -> Option<Duration> {
        let left = self.remaining().ok().filter(|left| *left <= self.request().ttl / 2)?;
        (!self.halved.swap(true, Ordering::AcqRel)).then_some(left)
    }
}
