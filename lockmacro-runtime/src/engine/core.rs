//! What all locks of a manager share: the store, the background thread, and the counters.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::try_id;

use crate::engine::background::Background;
use crate::engine::blocking::may_block;
use crate::engine::hold_times::HoldTimes;
use crate::engine::in_flight::{InFlight, InFlightGuard};
use crate::engine::per_process::PerProcess;
#[cfg(feature = "defer")]
use crate::jobs::deferrer::Deferrer;
use crate::protocol::shutdown::Shutdown;
use crate::store::dispatch::Store;
use crate::value::defaults::Defaults;
use crate::value::error::LockError;
use crate::value::key::LockKey;
use crate::value::token::{default_label, label};

/// The manager of every lock that is given none.
static INSTALLED: OnceLock<Arc<Core>> = OnceLock::new();

/// A manager as its locks know it.
pub(crate) struct Core {
    own: PerProcess,
    pub(crate) background: Background,
    label: String,
    /// Whether the label names the process.
    names_process: bool,
    pub(crate) defaults: Defaults,
    /// How long its locks were held.
    pub(crate) hold_times: HoldTimes,
    pub(crate) in_flight: InFlight,
    pub(crate) shutdown: Arc<Shutdown>,
    /// Where deferred calls are kept, and whether that was said by the builder.
    #[cfg(feature = "defer")]
    pub(crate) jobs: (Arc<dyn Deferrer>, bool),
    #[cfg(feature = "defer")]
    pub(crate) max_deferred_size: usize,
}

impl Core {
    /// A manager of the locks of `backend`.
    pub(crate) fn over(
        store: Store,
        its_label: Option<String>,
        defaults: Defaults,
        #[cfg(feature = "defer")] deferrer: Option<Arc<dyn Deferrer>>,
        #[cfg(feature = "defer")] max_deferred_size: usize,
    ) -> Arc<Self> {
        #[cfg(feature = "defer")]
        let jobs = match deferrer {
            Some(deferrer) => (deferrer, true),
            None => (store.deferrer(max_deferred_size), false),
        };
        Arc::new_cyclic(|core: &Weak<Self>| {
            let core = Weak::clone(core);
            store.on_change(move || {
                if let Some(core) = core.upgrade() {
                    core.background.confirm_all();
                }
            });
            Self {
                #[cfg(feature = "defer")]
                jobs,
                #[cfg(feature = "defer")]
                max_deferred_size,
                background: Background::new(&store),
                own: PerProcess::new(store),
                names_process: its_label.is_none(),
                label: label(&its_label.unwrap_or_else(default_label)),
                defaults,
                hold_times: HoldTimes::default(),
                in_flight: InFlight::default(),
                shutdown: Arc::default(),
            }
        })
    }

    /// The manager that was installed.
    ///
    /// # Errors
    /// [`LockError::NotInstalled`] when there is none.
    pub(crate) fn installed() -> Result<Arc<Self>, LockError> {
        INSTALLED.get().cloned().ok_or(LockError::NotInstalled)
    }

    /// Makes this the installed manager, unless another one is.
    ///
    /// # Errors
    /// [`LockError::AlreadyInstalled`].
    pub(crate) fn install(self: &Arc<Self>) -> Result<(), LockError> {
        let installed = INSTALLED.get_or_init(|| Arc::clone(self));
        if self.is(installed) { Ok(()) } else { Err(LockError::AlreadyInstalled) }
    }

    /// The same by the background thread, for callers that block.
    pub(crate) fn ready_blocking(&self) -> Result<(), LockError> {
        may_block()?;
        self.background.block_on(|store| async move { store.ready().await })?
    }

    /// Asks the servers whether they are there, and let us do what locks need.
    pub(crate) async fn ready(&self) -> Result<(), LockError> {
        if self.shutdown.is_closed() {
            return Err(LockError::ShutDown);
        }
        inside_runtime()?;
        self.own.is_forked();
        let store = self.store();
        let ready = store.ready().await;
        if self.shutdown.is_closed() {
            // What it has opened since then is of no more use.
            store.disconnect();
            return Err(LockError::ShutDown);
        }
        ready
    }

    /// Ends the manager, and waits until no lock is out.
    pub(crate) async fn shut_down(&self, timeout: Duration) -> Result<(), LockError> {
        inside_runtime()?;
        self.shutdown.close();
        // A waiter looks when it is woken.
        self.store().alarm();
        self.background.alarm();
        let empty = tokio::time::timeout(timeout, self.in_flight.empty()).await;
        let held = self.in_flight.count();
        if empty.is_err() && held > 0 {
            return Err(LockError::ShutdownTimeout { held });
        }
        self.store().disconnect();
        self.background.stop();
        Ok(())
    }

    /// Tells when the manager is shut down.
    pub(crate) fn shutdown(&self) -> &Arc<Shutdown> {
        &self.shutdown
    }

    /// Where deferred calls are kept: to store some, to look at them, and to have dead letters tried
    /// again.
    #[cfg(feature = "defer")]
    pub(crate) fn deferrer(&self) -> Arc<dyn Deferrer> {
        match self.has_another_queue() || !self.own.is_forked() {
            true => Arc::clone(&self.jobs.0),
            // In a process that was forked.
            false => self.store().deferrer(self.max_deferred_size),
        }
    }

    /// Whether they are kept in another store than the locks.
    #[cfg(feature = "defer")]
    pub(crate) fn has_another_queue(&self) -> bool {
        self.jobs.1
    }

    /// The same for the background thread, by its own connection.
    #[cfg(feature = "defer")]
    pub(crate) fn deferrer_of(&self, store: &Store) -> Arc<dyn Deferrer> {
        match self.has_another_queue() {
            true => self.deferrer(),
            false => store.deferrer(self.max_deferred_size),
        }
    }

    /// How many bytes the arguments of a deferred call may have.
    #[cfg(feature = "defer")]
    pub(crate) fn max_deferred_size(&self) -> usize {
        self.max_deferred_size
    }

    /// Whether this and the other are one manager.
    pub(crate) fn is(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other)
    }

    pub(crate) fn store(&self) -> &Store {
        self.own.store()
    }

    /// The same for a question that outlives its borrow.
    pub(crate) fn shared_backend(&self) -> &Arc<Store> {
        self.own.store()
    }

    pub(crate) fn background(&self) -> &Background {
        &self.background
    }

    /// What this process shows itself as. Each token has it, so that a fork is noticed here.
    pub(crate) fn label(&self) -> Cow<'_, str> {
        match self.own.is_forked() && self.names_process {
            true => Cow::Owned(label(&default_label())),
            false => Cow::Borrowed(&self.label),
        }
    }

    /// Takes note of how long a key was held.
    pub(crate) fn note_held(&self, key: &LockKey, held: Duration) {
        self.hold_times.note(key, held);
    }

    /// When a caller may ask again that was refused `key`, with so many before it in line.
    pub(crate) fn retry_after(
        &self,
        key: &LockKey,
        before: u32,
        left: Option<Duration>,
    ) -> Duration {
        let (least, most) = self.defaults.retry_after();
        self.hold_times.retry_after(key, before, left).clamp(least, most)
    }

    /// What holds for locks that say nothing else.
    pub(crate) fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// Counts one lock more, unless the manager was shut down.
    #[cfg(feature = "defer")]
    pub(crate) fn enter(&self) -> Result<InFlightGuard, LockError> {
        self.count_in().map(|()| self.guard())
    }

    /// The same for one that remembers by itself that it is counted.
    pub(crate) fn count_in(&self) -> Result<(), LockError> {
        // Counted before the look, so that a shutdown either sees this lock or is seen by it.
        self.in_flight.enter();
        if self.shutdown.is_closed() {
            drop(self.guard());
            return Err(LockError::ShutDown);
        }
        Ok(())
    }

    /// One that was [counted in](Core::count_in); to be asked for once.
    pub(crate) fn guard(&self) -> InFlightGuard {
        self.in_flight.guard()
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager")
            .field("label", &self.label)
            .field("backend", self.store())
            .field("defaults", &self.defaults)
            .field("locks", &self.in_flight.count())
            .finish_non_exhaustive()
    }
}

/// Whether there is a tokio runtime to wait on.
pub(crate) fn inside_runtime() -> Result<(), LockError> {
    // A task is inside of one, and that is known without touching what all threads share.
    if try_id().is_some() || Handle::try_current().is_ok() {
        Ok(())
    } else {
        Err(LockError::NoRuntime)
    }
}
