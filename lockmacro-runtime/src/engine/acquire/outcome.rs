//! The outcome of a request for a lock: the engine's part of a guard, or the caller's error.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::acquire::unreported::{Errors, unreported};
use crate::engine::cleanup::acquisition::{Acquisition, Refusal};
use crate::engine::core::Core;
use crate::engine::lease::held::Held;
use crate::engine::observer::refused;
use crate::engine::queue::shared_queue::in_queue::{InQueue, TakenUp};
use crate::engine::telemetry;
use crate::protocol::answer::{Grant, Queueing};
use crate::protocol::lease::Renewal;
use crate::protocol::request::Request;
use crate::value::error::LockError;
use crate::value::holder::Holder;
use crate::value::loss::OnLost;
use crate::value::time::Moment;

/// A lock that was acquired, or joined. A guard is made of it.
pub(crate) struct Acquired {
    pub(crate) held: Arc<Held>,
    /// Index of the guard's key among the lock's keys; `None` for all of several.
    pub(crate) nth: Option<u8>,
    pub(crate) on_lost: OnLost,
    /// The body's value is returned without waiting for the release.
    pub(crate) releases_in_background: bool,
    /// The lock belongs to an outer guard, which releases it.
    pub(crate) joined: bool,
}

impl Acquired {
    pub(crate) fn owning(held: Arc<Held>, on_lost: OnLost, releases_in_background: bool) -> Self {
        Self { nth: held.only(), held, on_lost, releases_in_background, joined: false }
    }

    /// Joins a held lock, for the `nth` of its keys or for all; an error when the lock is lost.
    pub(crate) fn joining(
        held: Arc<Held>,
        nth: Option<u8>,
        on_lost: OnLost,
    ) -> Result<Self, LockError> {
        held.remaining()?;
        Ok(Self { held, nth, on_lost, releases_in_background: false, joined: true })
    }
}

/// The caller's options that apply after the server's answer.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) renewed: bool,
    pub(crate) on_lost: OnLost,
    pub(crate) releases_in_background: bool,
    pub(crate) errors: Errors,
    pub(crate) rare: Option<Box<Rare>>,
}

/// Options that most locks do not have. Boxed, to keep waiters small.
#[derive(Clone)]
pub(crate) struct Rare {
    max_hold: Option<Duration>,
    message: Option<Cow<'static, str>>,
}

impl Rare {
    pub(crate) fn of(
        max_hold: Option<Duration>,
        message: Option<Cow<'static, str>>,
    ) -> Option<Box<Self>> {
        let is_any = max_hold.is_some() || message.is_some();
        is_any.then(|| Box::new(Self { max_hold, message }))
    }
}

impl Wanted {
    /// The store has granted the lock. `None` if the queue of `caller` has gone on with the token.
    pub(crate) fn granted(
        &self,
        acquisition: Acquisition,
        grant: Grant,
        caller: Option<&InQueue>,
    ) -> Result<Option<Acquired>, LockError> {
        let renewal = self.renewal(grant.sent);
        let held = Held::new(acquisition, grant, renewal, caller.cloned()).inspect_err(refused)?;
        Ok(held.map(|held| {
            telemetry::acquired(held.request());
            Acquired::owning(held, self.on_lost, self.releases_in_background)
        }))
    }

    /// The lock was passed on inside this process.
    pub(crate) fn taken_up(
        &self,
        taken_up: TakenUp,
        request: &Request,
    ) -> Result<Acquired, LockError> {
        telemetry::acquired(request);
        let held = Held::taken_up(taken_up, request, |now| self.renewal(now));
        let held = held.inspect_err(refused)?;
        Ok(Acquired::owning(held, self.on_lost, self.releases_in_background))
    }

    pub(crate) fn refused(
        &self,
        manager: &Core,
        request: &Request,
        refusal: Refusal,
    ) -> Result<Acquired, LockError> {
        let error = match refusal {
            Refusal::Contended { key, holder, queue } => {
                let left = holder.left;
                let retry = |before| manager.retry_after(&key, before, left);
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
            Refusal::Failed(error) => error,
        };
        let known = error.is_of_servers() && !manager.store().servers().is_news();
        telemetry::refused(request, &error, known);
        if self.errors != Errors::Carried {
            unreported(&request.name, request.keys(), &error);
        }
        refused(&error);
        Err(error)
    }

    /// How a lease that began at `began` is renewed.
    fn renewal(&self, began: Moment) -> Renewal {
        let max_hold = self.rare.as_ref().and_then(|rare| rare.max_hold);
        match max_hold.map(|max_hold| began.after(max_hold)) {
            _ if !self.renewed => Renewal::Off,
            Some(limit) => Renewal::Until(limit),
            None => Renewal::On,
        }
    }
}
