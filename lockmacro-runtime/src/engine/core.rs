//! The state that all locks of a manager share: the store, the background thread, and the counters.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::try_id;

use crate::defer::Jobs;
use crate::engine::hold_times::HoldTimes;
use crate::engine::thread::background::Background;
use crate::engine::thread::blocking::may_block;
use crate::engine::token::in_flight::{InFlight, InFlightGuard, Trailing};
use crate::store::handle::Store;
use crate::store::shutdown::Shutdown;
use crate::sys::platform::host_name;
use crate::sys::time::Moment;
use crate::value::defaults::Defaults;
use crate::value::error::LockError;
use crate::value::key::LockKey;
use crate::value::token::label;

/// Round trips in a turn.
const ROUND_TRIPS: u32 = 10;
const TURN_MIN: Duration = Duration::from_millis(20);
const TURN_MAX: Duration = Duration::from_millis(100);

/// The part of a manager that its locks share.
pub(crate) struct Core {
    pub(crate) store: Store,
    pub(crate) background: Background,
    label: Arc<str>,
    pub(crate) defaults: Defaults,
    /// Recent hold times, from which `retry_after` is estimated.
    pub(crate) hold_times: HoldTimes,
    pub(crate) in_flight: Arc<InFlight>,
    /// The releases that no caller waits for.
    pub(crate) trailing: Arc<InFlight>,
    /// Those among them of locks that belong to no queue.
    pub(crate) trailing_outside: Arc<Trailing>,
    pub(crate) shutdown: Arc<Shutdown>,
    pub(crate) jobs: Jobs,
    #[cfg(any(feature = "defer", feature = "reuse"))]
    pub(crate) sites: crate::engine::sites::Sites,
}

impl Core {
    /// A manager of the locks in `store`.
    pub(crate) fn over(
        store: Store,
        its_label: Option<String>,
        defaults: Defaults,
        jobs: Jobs,
    ) -> Arc<Self> {
        #[cfg(feature = "metrics")]
        crate::sys::metrics::describe();
        Arc::new_cyclic(|core: &Weak<Self>| {
            // Weak, as the core owns the store that keeps this callback.
            let core = Weak::clone(core);
            store.backend.on_change(Box::new(move || {
                if let Some(core) = core.upgrade() {
                    core.background.confirm_all();
                }
            }));
            Self {
                jobs,
                #[cfg(any(feature = "defer", feature = "reuse"))]
                sites: Default::default(),
                background: Background::new(&store),
                store,
                label: label(its_label.as_deref(), host_name).into(),
                defaults,
                hold_times: HoldTimes::default(),
                in_flight: Arc::default(),
                trailing: Arc::default(),
                trailing_outside: Arc::default(),
                shutdown: Arc::default(),
            }
        })
    }

    /// [`ready`](Core::ready) by the background thread, for blocking callers.
    pub(crate) fn ready_blocking(&self) -> Result<(), LockError> {
        may_block()?;
        self.background.block_on(self.background.store.backend.ready())?
    }

    /// Checks that the servers are reachable and permit the commands that locks need.
    pub(crate) async fn ready(&self) -> Result<(), LockError> {
        if self.shutdown.is_closed() {
            return Err(LockError::SHUT_DOWN);
        }
        inside_runtime()?;
        let ready = self.store.backend.ready().await;
        // A shutdown meanwhile has closed the connections, which explains any other error.
        if self.shutdown.is_closed() { Err(LockError::SHUT_DOWN) } else { ready }
    }

    /// Longest time for one answer. A store in memory answers at once, but the background thread
    /// that sends the request may be slower.
    pub(crate) fn answer_time(&self) -> Duration {
        match self.store.facts.answer_time() {
            Duration::ZERO => Duration::from_secs(1),
            answer => answer,
        }
    }

    /// When a server that may forget its locks was last replaced, or may have been.
    pub(crate) fn last_change(&self) -> Option<Moment> {
        self.store.facts.may_forget.then(|| self.background.timers.last_change()).flatten()
    }

    /// The label of this process, which every token contains.
    ///
    /// # Errors
    /// [`LockError::InvalidSetting`] in a process that was forked after the manager was made: it
    /// has neither the manager's thread nor connections of its own.
    pub(crate) fn label(&self) -> Result<&Arc<str>, LockError> {
        if !self.background.is_forked() {
            return Ok(&self.label);
        }
        let detail = "it was made before this process was forked: make one after the fork";
        Err(LockError::invalid("manager", detail))
    }

    /// When a caller that found `key` busy may ask again, with `before` waiters ahead of it.
    pub(crate) fn retry_after(
        &self,
        key: &LockKey,
        before: u32,
        left: Option<Duration>,
    ) -> Duration {
        let (least, most) = self.defaults.retry_after();
        self.hold_times.retry_after(key, before, left).clamp(least, most)
    }

    /// Counts a lock as in flight, unless the manager was shut down.
    pub(crate) fn enter(&self) -> Result<InFlightGuard, LockError> {
        // Counted before the check: so either the shutdown waits for the lock, or the lock is
        // refused because of the shutdown.
        let guard = self.in_flight.join();
        if self.shutdown.is_closed() { Err(LockError::SHUT_DOWN) } else { Ok(guard) }
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager")
            .field("label", &self.label)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// Whether there is a tokio runtime to wait on.
pub(crate) fn inside_runtime() -> Result<(), LockError> {
    // Every task has a runtime. Checked first, as it touches nothing that threads share.
    let is_inside = try_id().is_some() || Handle::try_current().is_ok();
    is_inside.then_some(()).ok_or(LockError::NO_RUNTIME)
}

/// For how long a lock is passed on inside this process by one grant of the store: the value that
/// was set, or else ten round trips as last measured.
pub(crate) fn turn(set: Option<Duration>, round_trip: Duration) -> Duration {
    set.unwrap_or_else(|| (round_trip * ROUND_TRIPS).clamp(TURN_MIN, TURN_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_turn_is_ten_round_trips_within_its_bounds() {
        assert_eq!(turn(None, Duration::ZERO), ms(20));
        assert_eq!(turn(None, ms(5)), ms(50));
        assert_eq!(turn(None, ms(50)), ms(100));
        assert_eq!(turn(Some(Duration::ZERO), ms(50)), Duration::ZERO);
        assert_eq!(turn(Some(ms(900)), ms(1)), ms(900));
    }
}
