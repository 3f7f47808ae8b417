//! The looks of a worker for jobs that are due, of many functions at once.
//!
//! A task for each function waits until a job may be due, and looks. A look takes no job: a node
//! that hangs delays its own functions only, and a look whose answer nobody reads has changed
//! nothing. The results are kept for the worker's next request.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::requests::{key_of, take_jobs};
use crate::store::backend::Backend;
use crate::store::redis::store::Redis;
use crate::store::subscriptions::Subscription;
use crate::sys::random::random_name;
use crate::sys::task::{JoinSet, owned};
use crate::sys::time::Instant;
use crate::value::companion::slot;
use crate::value::error::LockError;

/// Pause after an error of one function, while others work.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The looks of one worker at its functions.
#[derive(Debug)]
pub(crate) struct Looks {
    redis: Arc<Redis>,
    pub(crate) functions: Vec<Look>,
    /// The function, and the time when a job is due: the result may wait here for long.
    asked: JoinSet<(usize, Result<Instant, LockError>)>,
}

#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) function: Arc<str>,
    pub(crate) subscription: Arc<Subscription>,
    answered: bool,
    failing: bool,
    /// The id of the unanswered request for jobs, and the time when it was first sent.
    pub(crate) open_request: Option<(String, Instant)>,
}

impl Looks {
    pub(crate) fn new(redis: &Arc<Redis>, functions: &[Arc<str>]) -> Self {
        let look = |function: &Arc<str>| {
            let slot = slot(key_of(function).as_str());
            let function = Arc::clone(function);
            let subscription =
                Arc::new(redis.grants.subscriptions.join(slot, random_name() as u64));
            Look { function, subscription, answered: false, failing: false, open_request: None }
        };
        let functions = functions.iter().map(look).collect();
        let mut looks = Self { redis: Arc::clone(redis), functions, asked: JoinSet::new() };
        looks.ask_all();
        looks
    }

    /// The id of the request for jobs of a function, and the time since when it is sent. The id
    /// stays the same until an answer arrives: jobs that were taken by an answer that did not
    /// arrive are found by it.
    pub(crate) fn open_request(&mut self, nth: usize) -> (String, Instant) {
        let new = || (format!("{:032x}", random_name()), Instant::now());
        self.functions[nth].open_request.get_or_insert_with(new).clone()
    }

    /// Looks at a function after a pause, or on a push.
    fn ask(&mut self, nth: usize, pause: Duration) {
        let Look { function, subscription, .. } = &self.functions[nth];
        let function = Arc::clone(function);
        let subscription = Arc::clone(subscription);
        let redis = Arc::clone(&self.redis);
        // Jobs that an unanswered request has taken are not left to their leases.
        let open = self.functions[nth].open_request.is_some();
        // A single function delays no other: its jobs are taken at once.
        let alone = self.functions.len() == 1;
        self.asked.spawn(owned(async move {
            if !pause.is_zero() {
                // With or without a push, it looks again.
                let _ = timeout(pause, subscription.signal()).await;
            }
            if alone {
                return (nth, Ok(Instant::now()));
            }
            // No job is taken.
            let looked =
                take_jobs(&redis, (&function, &subscription), "", 0, Duration::ZERO, 0, true).await;
            let pause = looked.map(|(_, due)| if open { Duration::ZERO } else { due });
            (nth, pause.map(|pause| Instant::now() + pause))
        }));
    }

    fn ask_all(&mut self) {
        self.asked = JoinSet::new();
        for nth in 0..self.functions.len() {
            self.ask(nth, Duration::ZERO);
        }
    }

    /// The next result: the function, and the time when a job is due. Cancel safe.
    pub(crate) async fn next(&mut self) -> (usize, Result<Instant, LockError>) {
        loop {
            match self.asked.join_next().await {
                Some(Ok(answered)) => return answered,
                None if self.functions.is_empty() => pending().await,
                // They were given up, or have ended with the runtime of an earlier worker.
                Some(Err(_)) | None => self.ask_all(),
            }
        }
    }

    /// Continues to look at a function that has answered.
    pub(crate) fn succeeded(&mut self, nth: usize, pause: Duration) {
        (self.functions[nth].answered, self.functions[nth].failing) = (true, false);
        self.ask(nth, pause);
    }

    /// Pauses a function after an error. Returns the error if all functions fail, or if the user
    /// may not take the jobs of this one; a right that is taken away later does not end the
    /// worker.
    pub(crate) fn failed(&mut self, nth: usize, error: LockError) -> Option<LockError> {
        self.functions[nth].failing = true;
        let is_reported = match &error {
            LockError::AccessDenied { .. } => !self.functions[nth].answered,
            _ => self.functions.iter().all(|look| look.failing),
        };
        if is_reported {
            // The worker pauses or ends. After that, what was found before it says nothing.
            self.asked = JoinSet::new();
            return Some(error);
        }
        let function = &self.functions[nth].function;
        if error.is_of_servers() && !self.redis.is_news() {
            tracing::debug!(%function, %error, "jobs could not be taken")
        } else {
            tracing::warn!(%function, %error, "jobs could not be taken")
        }
        self.ask(nth, RETRY_DELAY);
        None
    }
}
