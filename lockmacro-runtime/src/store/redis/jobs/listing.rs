//! Looking for deferred calls that are due, of many functions at once.
//!
//! A task for each function waits until a call may be due, and looks. A look takes no call: a node
//! that hangs delays its own functions only, and a look whose answer nobody reads has changed
//! nothing. The results are kept for the worker's next request.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::store::redis::jobs::calls::Calls;
use crate::store::waiters::Waiter;
use crate::value::error::LockError;
use crate::value::random::random_name;
use crate::value::sync::{Mutex, MutexGuard};
use crate::value::task::{JoinSet, owned};
use crate::value::time::Instant;

/// Pause after an error of one function, while others work.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Most workers of a manager whose looks are kept.
const IDLE_MAX: usize = 16;

/// The looks of one worker at its functions.
#[derive(Debug)]
pub(crate) struct Looks {
    calls: Calls,
    functions: Vec<Look>,
    /// The function, and the time when a call is due: the result may wait here for long.
    asked: JoinSet<(usize, Result<Instant, LockError>)>,
}

#[derive(Debug)]
struct Look {
    function: Arc<str>,
    waiter: Arc<Waiter>,
    answered: bool,
    failing: bool,
    /// The id of the unanswered request for calls, and the time when it was first sent.
    open_request: Option<(String, Instant)>,
}

impl Looks {
    fn new(calls: &Calls, functions: &[Arc<str>]) -> Self {
        let look = |function: &Arc<str>| Look {
            function: Arc::clone(function),
            waiter: Arc::new(calls.join(function)),
            answered: false,
            failing: false,
            open_request: None,
        };
        let functions = functions.iter().map(look).collect();
        let mut looks = Self { calls: calls.clone(), functions, asked: JoinSet::new() };
        looks.ask_all();
        looks
    }

    /// A function and its waiter.
    pub(crate) fn of(&self, nth: usize) -> (&Arc<str>, &Waiter) {
        let Look { function, waiter, .. } = &self.functions[nth];
        (function, waiter)
    }

    /// The id of the request for calls of a function, and the time since when it is sent. The id
    /// stays the same until an answer arrives: calls that were taken by a lost answer are found by
    /// it.
    pub(crate) fn open_request(&mut self, nth: usize) -> (String, Instant) {
        let new = || (format!("{:032x}", random_name()), Instant::now());
        self.functions[nth].open_request.get_or_insert_with(new).clone()
    }

    pub(crate) fn answered(&mut self, nth: usize) {
        self.functions[nth].open_request = None;
    }

    /// Looks at a function after a pause, or on a push.
    pub(crate) fn ask(&mut self, nth: usize, pause: Duration) {
        let Look { function, waiter, .. } = &self.functions[nth];
        let (function, waiter) = (Arc::clone(function), Arc::clone(waiter));
        let calls = self.calls.clone();
        // Calls that an unanswered request has taken are not left to their leases.
        let open = self.functions[nth].open_request.is_some();
        // A single function delays no other: its calls are taken at once.
        let alone = self.functions.len() == 1;
        self.asked.spawn(owned(async move {
            if !pause.is_zero() {
                // With or without a push, it looks again.
                let _ = timeout(pause, waiter.signal()).await;
            }
            if alone {
                return (nth, Ok(Instant::now()));
            }
            let due = calls.look(&function, &waiter).await;
            (nth, due.map(|due| Instant::now() + if open { Duration::ZERO } else { due }))
        }));
    }

    fn ask_all(&mut self) {
        self.asked = JoinSet::new();
        for nth in 0..self.functions.len() {
            self.ask(nth, Duration::ZERO);
        }
    }

    /// The next result: the function, and the time when a call is due. Cancel safe.
    pub(crate) async fn next(&mut self) -> (usize, Result<Instant, LockError>) {
        loop {
            match self.asked.join_next().await {
                Some(Ok(answered)) => return answered,
                // The tasks have ended with the runtime of an earlier worker.
                Some(Err(_)) => self.ask_all(),
                None => pending().await,
            }
        }
    }

    /// Continues to look at a function that has answered.
    pub(crate) fn succeeded(&mut self, nth: usize, pause: Duration) {
        (self.functions[nth].answered, self.functions[nth].failing) = (true, false);
        self.ask(nth, pause);
    }

    /// Pauses a function after an error. Returns the error if all functions fail, or if the user may
    /// not take the calls of this one; a right that is taken away later does not end the worker.
    pub(crate) fn failed(&mut self, nth: usize, error: LockError) -> Option<LockError> {
        self.functions[nth].failing = true;
        let is_reported = match &error {
            LockError::AccessDenied { .. } => !self.functions[nth].answered,
            _ => self.functions.iter().all(|look| look.failing),
        };
        if is_reported {
            // The worker pauses or ends.
            self.ask(nth, Duration::ZERO);
            return Some(error);
        }
        let function = &self.functions[nth].function;
        match error.is_of_servers() && !self.calls.is_news() {
            true => tracing::debug!(%function, %error, "deferred calls could not be taken"),
            false => tracing::warn!(%function, %error, "deferred calls could not be taken"),
        }
        self.ask(nth, RETRY_DELAY);
        None
    }
}

/// The looks of workers between their requests.
#[derive(Debug, Default)]
pub(crate) struct IdleLooks(Mutex<Vec<Looks>>);

impl IdleLooks {
    /// The kept looks of a worker of these functions, or new ones.
    pub(crate) fn take(&self, calls: &Calls, functions: &[Arc<str>]) -> Looks {
        let mut idle = self.all();
        let is_its =
            |looks: &Looks| looks.functions.iter().map(|look| &look.function).eq(functions);
        match idle.iter().position(is_its) {
            Some(nth) => idle.swap_remove(nth),
            None => Looks::new(calls, functions),
        }
    }

    pub(crate) fn put(&self, looks: Looks) {
        let mut idle = self.all();
        if idle.len() == IDLE_MAX {
            idle.remove(0);
        }
        idle.push(looks);
    }

    fn all(&self) -> MutexGuard<'_, Vec<Looks>> {
        // No code under this mutex leaves the list half changed.
        self.0.lock()
    }
}
