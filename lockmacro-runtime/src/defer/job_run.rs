//! One turn of a worker with one call: it is kept and run, and its end is told.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::select;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::defer::function::{Called, Function};
use crate::defer::outcome::Ended;
use crate::jobs::call::{Job, Settled};
use crate::jobs::deferrer::Deferrer;
use crate::jobs::limits::abandoned;
use crate::manager::lock_manager::LockManager;
use crate::store::dispatch::Store;
use crate::value::backoff::Backoff;
use crate::value::error::LockError;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause while the server cannot be asked.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// So many bytes of an error are kept at most.
const ERROR_MAX: usize = 2 * 1024;

/// A call that a worker has taken.
pub(crate) struct JobRun {
    pub(crate) manager: LockManager,
    pub(crate) deferrer: Arc<dyn Deferrer>,
    pub(crate) function: Function,
    pub(crate) job: Job,
    pub(crate) lease: Duration,
}

impl JobRun {
    /// Has the call kept by a task of its own, also while it blocks its thread. The task ends when the call
    /// is not this worker's any more, and with what this returns.
    pub(crate) fn keeper(&self) -> JoinSet<()> {
        let mut keeper = JoinSet::new();
        keeper.spawn(lapsed(Arc::clone(&self.deferrer), self.job.clone(), self.lease));
        keeper
    }

    /// Runs the call and tells how it ended.
    pub(crate) async fn run(self, mut keeper: JoinSet<()>, mut give_back: watch::Receiver<bool>) {
        let how = if self.function.is_exhausted(self.job.attempt) {
            dead(abandoned(u64::from(self.job.attempt - 1)))
        } else {
            match self.function.call(&self.job) {
                Err(unfit) => dead(unfit),
                Ok(called) => select! {
                    biased;
                    ended = caught(called) => self.settled(ended),
                    _ = keeper.join_next() => {
                        let Job { function, id, .. } = &self.job;
                        tracing::warn!(%function, id, "a deferred call went to another worker");
                        return;
                    }
                    // What cannot be stopped is left to its lease.
                    _ = give_back.wait_for(|give_back| *give_back) => match self.function.blocking {
                        true => return,
                        false => Settled::Untried,
                    },
                },
            }
        };
        self.note(&how);
        let mut settled = pin!(self.settle(how, give_back));
        select! {
            biased;
            () = &mut settled => {}
            // It may be nobody else's yet.
            _ = keeper.join_next() => settled.await,
        }
    }

    /// What is to become of the call.
    fn settled(&self, ended: Ended) -> Settled {
        let Job { attempt, busy, .. } = self.job;
        match ended {
            Ended::Done => Settled::Done,
            // It may have failed because of that.
            _ if self.manager.core().shutdown().is_closed() => Settled::Untried,
            Ended::Busy { error, left } => match self.function.when_busy(busy, left) {
                Some(delay) => Settled::Busy { delay, error: shortened(error) },
                None => dead(format!("its lock could not be had {busy} times: {error}")),
            },
            Ended::Failed(error) => match self.function.again(attempt) {
                Some(delay) => Settled::Again { delay, error: shortened(error) },
                None => dead(error),
            },
        }
    }

    fn note(&self, how: &Settled) {
        let Job { function, id, attempt, .. } = &self.job;
        match how {
            Settled::Dead { error } => {
                tracing::error!(%function, id, attempt, error, "deferred call is a dead letter");
            }
            Settled::Again { delay, error } => {
                tracing::warn!(%function, id, attempt, error, ?delay, "deferred call failed");
            }
            Settled::Busy { delay, error } => {
                tracing::info!(%function, id, error, ?delay, "deferred call could not be tried");
            }
            _ => tracing::debug!(%function, id, attempt, ?how, "deferred call ended"),
        }
    }

    /// Tells how the call ended, for as long as a lease lasts, and once more when the worker has to end. Whoever
    /// calls this has the call kept meanwhile.
    async fn settle(&self, how: Settled, mut end: watch::Receiver<bool>) {
        let Job { function, id, .. } = &self.job;
        let until = Instant::now() + self.lease;
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let is_last = *end.borrow();
            let error = match self.tell(how.clone()).await {
                Ok(true) => return,
                Ok(false) => {
                    tracing::warn!(%function, id, "a deferred call ended when it was another worker's already");
                    return;
                }
                Err(error) => error,
            };
            // What is refused now will be refused again.
            let in_trouble = matches!(error, LockError::Unavailable { .. });
            let pause = backoff.next();
            if !in_trouble || is_last || Instant::now() + pause > until {
                tracing::error!(%function, id, %error, "how a deferred call ended could not be told: it runs again");
                return;
            }
            select! {
                _ = end.wait_for(|end| *end) => {}
                () = sleep(pause) => {}
            }
        }
    }

    async fn tell(&self, how: Settled) -> Result<bool, LockError> {
        let job = self.job.clone();
        if how != Settled::Untried || self.manager.core().has_another_queue() {
            return self.deferrer.settle(job, how).await;
        }
        // After the locks of its body, which are released by that thread: on one server the next worker does
        // not find them busy.
        let manager = self.manager.clone();
        let back = move |store: Arc<Store>| async move {
            manager.core().deferrer_of(&store).settle(job, how).await
        };
        self.manager.core().background().call_after_cleanup(back).await?
    }
}

fn dead(error: String) -> Settled {
    Settled::Dead { error: shortened(error) }
}

/// Has a call kept, until it is not this worker's any more.
async fn lapsed(deferrer: Arc<dyn Deferrer>, job: Job, lease: Duration) {
    let mut until = Instant::now() + lease;
    loop {
        sleep((lease / 3).min(until.saturating_duration_since(Instant::now()))).await;
        let asked = Instant::now();
        match deferrer.keep(job.clone(), lease).await {
            Ok(true) => until = asked + lease,
            Ok(false) => return,
            Err(_) if Instant::now() < until => sleep(FIRST_PAUSE).await,
            Err(_) => return,
        }
    }
}

/// What comes of a call; a panic is a failure.
async fn caught(mut called: Called) -> Ended {
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| called.as_mut().poll(cx)));
        polled.unwrap_or_else(|panic| Poll::Ready(Ended::with_panic(&*panic)))
    })
    .await
}

/// The start of a long error: each dead letter keeps its own.
fn shortened(mut error: String) -> String {
    const CUT: &str = "…";
    if error.len() > ERROR_MAX {
        let mut ends = (0..=ERROR_MAX - CUT.len()).rev();
        error.truncate(ends.find(|end| error.is_char_boundary(*end)).unwrap_or(0));
        error.push_str(CUT);
    }
    error
}
