//! The outcome of a request for a lock: the engine's part of a guard, or the caller's error.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::acquire::options::LockOptions;
use crate::engine::core::Core;
use crate::engine::lease::held::Held;
use crate::engine::observer::observe;
use crate::engine::queue::shared_queue::in_queue::{InQueue, TakenUp};
use crate::engine::telemetry::{self, Behind};
use crate::engine::token::acquisition::{Acquisition, Refusal};
use crate::protocol::answer::{Grant, Queueing};
use crate::protocol::ask::Ask;
use crate::sys::metrics;
use crate::sys::time::Moment;
use crate::value::error::LockError;
use crate::value::key::{Listed, LockKey};
use crate::value::loss::OnLost;

/// A lock that was acquired, or joined: the engine's part of a guard. Dropping it releases the lock
/// in the background, unless another guard does so.
pub(crate) struct Acquired {
    pub(crate) held: Arc<Held>,
    /// Index of the guard's key among the lock's keys; `None` for all of several.
    pub(crate) nth: Option<u8>,
    pub(crate) on_lost: OnLost,
    /// The body's value is returned without waiting for the release.
    pub(crate) releases_in_background: bool,
    /// The lock belongs to another guard, which releases it.
    pub(crate) joined: bool,
}

impl Acquired {
    /// Joins a held lock, for the `nth` of its keys or for all.
    pub(crate) fn joining(nth: Option<u8>, held: Arc<Held>, on_lost: OnLost) -> Self {
        Self { held, nth, on_lost, releases_in_background: false, joined: true }
    }
}

impl Drop for Acquired {
    fn drop(&mut self) {
        if !self.joined {
            // Joined guards may still refer to the lock; the release does not wait for them.
            self.held.abandon();
        }
    }
}

/// The caller's options that apply after the server's answer.
#[derive(Clone)]
pub(crate) struct Wanted {
    renewed: bool,
    on_lost: OnLost,
    releases_in_background: bool,
    errors: Errors,
    /// The longest hold and the message, which most locks do not have. Boxed, to keep waiters
    /// small.
    rare: Option<Box<(Duration, Option<Cow<'static, str>>)>>,
}

impl Wanted {
    pub(crate) fn new(
        options: &LockOptions,
        message: Option<Cow<'static, str>>,
        errors: Errors,
    ) -> Self {
        Self {
            renewed: options.is_renewed(),
            on_lost: options.on_lost,
            releases_in_background: options.releases_in_background,
            errors,
            rare: (options.max_hold.is_some() || message.is_some())
                .then(|| Box::new((options.max_hold.unwrap_or(Duration::MAX), message))),
        }
    }

    /// The store has granted the lock. `None` if the queue of `caller` has gone on with the token.
    /// `behind`: whom a caller outside of a queue has waited for.
    pub(crate) fn granted(
        &self,
        acquisition: Acquisition,
        grant: Grant,
        caller: Option<&InQueue>,
        behind: Behind,
    ) -> Result<Option<Acquired>, LockError> {
        let renewal = self.renewed_until(grant.sent);
        let held = Held::new(acquisition, grant, renewal, caller.cloned())?;
        Ok(held.map(|held| {
            telemetry::acquired(&held.request.ask, behind);
            self.owning(held)
        }))
    }

    /// The lock was passed on inside this process.
    pub(crate) fn taken_up(
        &self,
        mut taken_up: TakenUp,
        ask: &Arc<Ask>,
    ) -> Result<Acquired, LockError> {
        let behind = taken_up.behind.take();
        let held = Held::taken_up(taken_up, ask, |now| self.renewed_until(now))?;
        telemetry::acquired(ask, behind);
        Ok(self.owning(held))
    }

    pub(crate) fn refused(
        &self,
        manager: &Core,
        ask: &Ask,
        refusal: Refusal,
    ) -> Result<Acquired, LockError> {
        let error = match refusal {
            Refusal::Contended { key, holder, queue } => {
                let before = match queue {
                    Queueing::Outside => 0,
                    Queueing::Behind(rank) => rank,
                    Queueing::Full => u32::MAX,
                };
                let retry_after = manager.retry_after(&key, before, holder.free_within);
                // Made here, so that an uncontended lock allocates nothing for it.
                let message = self.rare.as_deref().and_then(|(_, message)| message.as_deref());
                let message = message.map(str::to_owned);
                match queue {
                    Queueing::Outside => LockError::Busy { key, holder, retry_after, message },
                    Queueing::Behind(rank) => {
                        LockError::TimedOut { key, holder, retry_after, rank, message }
                    }
                    Queueing::Full => LockError::QueueFull { key, retry_after },
                }
            }
            Refusal::Failed(error) => error,
        };
        // An outage is logged once, and not by every caller that it refuses.
        let known = error.is_of_servers() && !manager.store.backend.is_news();
        telemetry::refused(ask, &error, known);
        metrics::refused(ask.name.clone(), error.kind());
        if self.errors != Errors::Carried {
            unreported(&ask.name, ask.keys(), &error);
        }
        observe(&error, false);
        Err(error)
    }

    fn owning(&self, held: Arc<Held>) -> Acquired {
        let Self { on_lost, releases_in_background, .. } = *self;
        Acquired { nth: held.only(), held, on_lost, releases_in_background, joined: false }
    }

    /// Until when a lease that began at `began` is renewed; `None` if it is not.
    fn renewed_until(&self, began: Moment) -> Option<Moment> {
        let max_hold = self.rare.as_deref().map_or(Duration::MAX, |(max_hold, _)| *max_hold);
        self.renewed.then(|| began.after(max_hold))
    }
}

/// Which errors are logged by the engine, because the caller's return type cannot carry them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errors {
    /// None.
    Carried,
    /// All.
    Reported,
    /// All but a loss after the body has finished, from which the caller recovers.
    ReportedUnlessLate,
}

/// Logs an error that a return type cannot carry. A busy lock is no error here.
///
/// # Panics
/// When there is no manager, no runtime, or a blocking lock on the only thread of a runtime. These
/// are bugs of the program, and the caller would go on as if another process had done the work.
pub(crate) fn unreported(name: &str, keys: &[LockKey], error: &LockError) {
    if error.is_busy() {
        return;
    }
    telemetry::unreported(name, Some(keys).filter(|keys| !keys.is_empty()).map(Listed), error);
    if let LockError::NotInstalled { .. } | LockError::NoRuntime { .. } = error {
        panic!("`{name}` cannot return this error, so its body never runs: {error}");
    }
}
