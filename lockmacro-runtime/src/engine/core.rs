//! What all locks of a manager share: the store, the background thread, and the counters.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::try_id;

use crate::engine::background::Janitor;
use crate::engine::blocking::may_block;
use crate::engine::hold_times::Holds;
use crate::engine::in_flight::{Census, Member};
use crate::engine::per_process::PerProcess;
#[cfg(feature = "defer")]
use crate::jobs::deferrer::Deferrer;
use crate::protocol::shutdown::Closing;
use crate::store::dispatch::Backend;
use crate::value::defaults::Defaults;
use crate::value::error::LockError;
use crate::value::key::LockKey;
use crate::value::token::{default_label, label};

/// The manager of every lock that is given none.
static INSTALLED: OnceLock<Arc<Core>> = OnceLock::new();

/// A manager as its locks know it.
pub(crate) struct Core {
    own: PerProcess,
    pub(crate) janitor: Janitor,
    label: String,
    /// Whether the label names the process.
    names_process: bool,
    pub(crate) defaults: Defaults,
    /// How long its locks were held.
    pub(crate) holds: Holds,
    pub(crate) census: Census,
    pub(crate) closing: Arc<Closing>,
    /// Where deferred calls are kept, and whether that was said by the builder.
    #[cfg(feature = "defer")]
    pub(crate) jobs: (Arc<dyn Deferrer>, bool),
    #[cfg(feature = "defer")]
    pub(crate) max_deferred_size: usize,
}

impl Core {
    /// A manager of the locks of `backend`.
    pub(crate) fn over(
        backend: Backend,
        its_label: Option<String>,
        defaults: Defaults,
        #[cfg(feature = "defer")] deferrer: Option<Arc<dyn Deferrer>>,
        #[cfg(feature = "defer")] max_deferred_size: usize,
    ) -> Arc<Self> {
        #[cfg(feature = "defer")]
        let jobs = match deferrer {
            Some(deferrer) => (deferrer, true),
            None => (backend.deferrer(max_deferred_size), false),
        };
        Arc::new_cyclic(|core: &Weak<Self>| {
            let core = Weak::clone(core);
            backend.on_change(move || {
                if let Some(core) = core.upgrade() {
                    core.janitor.confirm_all();
                }
            });
            Self {
                #[cfg(feature = "defer")]
                jobs,
                #[cfg(feature = "defer")]
                max_deferred_size,
                janitor: Janitor::new(&backend),
                own: PerProcess::new(backend),
                names_process: its_label.is_none(),
                label: label(&its_label.unwrap_or_else(default_label)),
                defaults,
                holds: Holds::default(),
                census: Census::default(),
                closing: Arc::default(),
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
        self.janitor.block_on(|backend| async move { backend.ready().await })?
    }

    /// Asks the servers whether they are there, and let us do what locks need.
    pub(crate) async fn ready(&self) -> Result<(), LockError> {
        if self.closing.is_closed() {
            return Err(LockError::ShutDown);
        }
        inside_runtime()?;
        self.own.is_forked();
        let backend = self.backend();
        let ready = backend.ready().await;
        if self.closing.is_closed() {
            // What it has opened since then is of no more use.
            backend.disconnect();
            return Err(LockError::ShutDown);
        }
        ready
    }

    /// Ends the manager, and waits until no lock is out.
    pub(crate) async fn shut_down(&self, timeout: Duration) -> Result<(), LockError> {
        inside_runtime()?;
        self.closing.close();
        // A waiter looks when it is woken.
        self.backend().alarm();
        self.janitor.alarm();
        let empty = tokio::time::timeout(timeout, self.census.empty()).await;
        let held = self.census.count();
        if empty.is_err() && held > 0 {
            return Err(LockError::ShutdownTimeout { held });
        }
        self.backend().disconnect();
        self.janitor.stop();
        Ok(())
    }

    /// Tells when the manager is shut down.
    pub(crate) fn closing(&self) -> &Arc<Closing> {
        &self.closing
    }

    /// Where deferred calls are kept: to store some, to look at them, and to have dead letters tried
    /// again.
    #[cfg(feature = "defer")]
    pub(crate) fn deferrer(&self) -> Arc<dyn Deferrer> {
        match self.has_another_queue() || !self.own.is_forked() {
            true => Arc::clone(&self.jobs.0),
            // In a process that was forked.
            false => self.backend().deferrer(self.max_deferred_size),
        }
    }

    /// Whether they are kept in another store than the locks.
    #[cfg(feature = "defer")]
    pub(crate) fn has_another_queue(&self) -> bool {
        self.jobs.1
    }

    /// The same for the background thread, by its own connection.
    #[cfg(feature = "defer")]
    pub(crate) fn deferrer_of(&self, backend: &Backend) -> Arc<dyn Deferrer> {
        match self.has_another_queue() {
            true => self.deferrer(),
            false => backend.deferrer(self.max_deferred_size),
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

    pub(crate) fn backend(&self) -> &Backend {
        self.own.backend()
    }

    /// The same for a question that outlives its borrow.
    pub(crate) fn shared_backend(&self) -> &Arc<Backend> {
        self.own.backend()
    }

    pub(crate) fn janitor(&self) -> &Janitor {
        &self.janitor
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
        self.holds.note(key, held);
    }

    /// When a caller may ask again that was refused `key`, with so many before it in line.
    pub(crate) fn retry_after(
        &self,
        key: &LockKey,
        before: u32,
        left: Option<Duration>,
    ) -> Duration {
        let (least, most) = self.defaults.retry_after();
        self.holds.retry_after(key, before, left).clamp(least, most)
    }

    /// What holds for locks that say nothing else.
    pub(crate) fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// Counts one lock more, unless the manager was shut down.
    #[cfg(feature = "defer")]
    pub(crate) fn enter(&self) -> Result<Member, LockError> {
        self.count_in().map(|()| self.member())
    }

    /// The same for one that remembers by itself that it is counted.
    pub(crate) fn count_in(&self) -> Result<(), LockError> {
        // Counted before the look, so that a shutdown either sees this lock or is seen by it.
        self.census.enter();
        if self.closing.is_closed() {
            drop(self.member());
            return Err(LockError::ShutDown);
        }
        Ok(())
    }

    /// One that was [counted in](Core::count_in); to be asked for once.
    pub(crate) fn member(&self) -> Member {
        self.census.member()
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager")
            .field("label", &self.label)
            .field("backend", self.backend())
            .field("defaults", &self.defaults)
            .field("locks", &self.census.count())
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
