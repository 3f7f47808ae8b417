//! The background thread: releases what was dropped, and asks on behalf of blocking callers.
//!
//! A dropped future cannot await its own release, and a task spawned for it dies with the runtime.
//! So every manager has, from the first need on, one thread with a small runtime and a connection
//! of its own. It ends when the manager and all its locks are gone and its work is done.

use std::pin::Pin;
use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::backend::{Backend, Claim};
use crate::blocking::blocked;
use crate::census::Member;
use crate::clearing::{Added, Cleanup};
use crate::clock::Moment;
use crate::error::{LockError, Unavailability};
use crate::held::Held;
use crate::renewal::{Enrolled, Renewals};

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;
type Job = Box<dyn FnOnce(Arc<Backend>) -> Work + Send>;

#[derive(Debug)]
pub(crate) struct Janitor {
    backend: Arc<Backend>,
    jobs: Mutex<Option<mpsc::UnboundedSender<Job>>>,
    renewals: Arc<Renewals>,
    /// Whether the task that renews was started; there is one at most.
    renewing: Mutex<bool>,
    cleanup: Arc<Cleanup>,
}

impl Janitor {
    /// A janitor for the locks of `backend`. Its thread starts with the first job.
    pub(crate) fn new(backend: &Backend) -> Self {
        Self {
            backend: Arc::new(backend.apart()),
            jobs: Mutex::new(None),
            renewals: Arc::default(),
            renewing: Mutex::new(false),
            cleanup: Arc::default(),
        }
    }

    /// Has the lease of `held` renewed from `due` on, or confirmed when the server may have been
    /// replaced, until what this returns is dropped. `None` where neither is to be done.
    ///
    /// The lease was granted by what was sent at `sent`.
    pub(crate) fn watch(
        &self,
        held: &Arc<Held>,
        sent: Moment,
        due: Option<Moment>,
    ) -> Result<Option<Enrolled>, LockError> {
        if due.is_none() && !self.backend.forgets() {
            return Ok(None);
        }
        let (enrolled, due) = self.renewals.enroll(Arc::downgrade(held), sent, due);
        if due || self.backend.fails_over() {
            self.start_renewing()?;
        }
        Ok(Some(enrolled))
    }

    /// Has those ask again who block, and wait in line.
    pub(crate) fn alarm(&self) {
        self.backend.alarm();
    }

    /// Has every held lock confirmed at once.
    pub(crate) fn confirm_all(&self) {
        if self.renewals.all_due(Moment::now())
            && let Err(error) = self.start_renewing()
        {
            tracing::error!(%error, "locks that are held are not confirmed on a new server");
        }
    }

    fn start_renewing(&self) -> Result<(), LockError> {
        let mut renewing = self.renewing.lock().unwrap_or_else(PoisonError::into_inner);
        if !*renewing {
            let renewals = Arc::clone(&self.renewals);
            self.run(move |backend| renewals.work(backend))?;
            *renewing = true;
        }
        Ok(())
    }

    /// Releases a lock that nobody waits for, see [`Cleanup`]. `member` leaves when it was
    /// released.
    pub(crate) fn clear_away(&self, claim: Arc<Claim>, member: Member) {
        let told = Arc::clone(&claim);
        if self.cleanup.add(claim, member) != Added::Starts {
            return;
        }
        let cleanup = Arc::clone(&self.cleanup);
        if let Err(error) = self.run(move |backend| cleanup.work(backend)) {
            self.cleanup.not_started();
            tracing::error!(key = %told.listed(), %error, "a dropped lock stays until its ttl is over");
        }
    }

    /// Runs `job` in the background and waits until it is done, on any executor.
    pub(crate) async fn call<T, F, W>(&self, job: F) -> Result<T, LockError>
    where
        T: Send + 'static,
        F: FnOnce(Arc<Backend>) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
    {
        let (done, result) = oneshot::channel();
        self.run(move |backend| async move {
            // The caller may have gone meanwhile.
            let _ = done.send(job(backend).await);
        })?;
        result.await.map_err(|_| no_thread("it ended"))
    }

    /// Ends the thread when its work is done. Another job would start another one.
    pub(crate) fn stop(&self) {
        self.renewals.close();
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Runs `job` in the background and blocks until it is done.
    pub(crate) fn block_on<T, F, W>(&self, job: F) -> Result<T, LockError>
    where
        T: Send + 'static,
        F: FnOnce(Arc<Backend>) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
    {
        let (done, result) = std_mpsc::sync_channel(1);
        self.run(move |backend| async move {
            // The caller waits for it; if it were gone, nobody would.
            let _ = done.send(job(backend).await);
        })?;
        blocked(|| result.recv()).map_err(|_| no_thread("it ended"))
    }

    fn run<F, W>(&self, job: F) -> Result<(), LockError>
    where
        F: FnOnce(Arc<Backend>) -> W + Send + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = match &mut *jobs {
            Some(sender) => sender,
            none => none.insert(start(Arc::clone(&self.backend)).map_err(no_thread)?),
        };
        let job: Job = Box::new(move |backend| Box::pin(job(backend)));
        sender.send(job).map_err(|_| no_thread("it ended"))
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        self.renewals.close();
    }
}

fn no_thread(why: impl ToString) -> LockError {
    let detail = format!("the background thread: {}", why.to_string());
    LockError::Unavailable { reason: Unavailability::Local, detail }
}

fn start(backend: Arc<Backend>) -> std::io::Result<mpsc::UnboundedSender<Job>> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let (sender, jobs) = mpsc::unbounded_channel();
    thread::Builder::new()
        .name("lockmacro-janitor".to_owned())
        .spawn(move || runtime.block_on(work(backend, jobs)))?;
    Ok(sender)
}

async fn work(backend: Arc<Backend>, mut jobs: mpsc::UnboundedReceiver<Job>) {
    let mut under_way = JoinSet::new();
    while let Some(job) = jobs.recv().await {
        under_way.spawn(job(Arc::clone(&backend)));
        while under_way.try_join_next().is_some() {}
    }
    // The manager is gone; what it left is still done, and every job has an end.
    while under_way.join_next().await.is_some() {}
}
