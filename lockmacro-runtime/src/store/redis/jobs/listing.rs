//! Looking for deferred calls that are due, of many functions at once.
//!
//! A task for each function waits until it is time, and asks. It takes nothing: a node that hangs holds
//! up its own functions only, and a question whose answer nobody waits for has done nothing. What was
//! found out is kept for the worker's next turn.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::store::redis::jobs::calls::Calls;
use crate::store::waiters::Waiter;
use crate::value::error::LockError;
use crate::value::sync::{Mutex, MutexGuard};

/// How long a function in trouble is left alone.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// So many workers of a manager find what they knew.
const IDLE_MAX: usize = 16;

/// What is known of the functions of one worker.
#[derive(Debug)]
pub(crate) struct Looks {
    calls: Calls,
    functions: Vec<Look>,
    /// Which one, and when something is due: an answer may lie here for long.
    asked: JoinSet<(usize, Result<Instant, LockError>)>,
}

#[derive(Debug)]
struct Look {
    function: Arc<str>,
    waiter: Arc<Waiter>,
    failing: bool,
    /// By which question calls are taken that was not answered yet, and when it was asked first.
    question: Option<(String, Instant)>,
}

impl Looks {
    fn new(calls: &Calls, functions: &[Arc<str>]) -> Self {
        let look = |function: &Arc<str>| Look {
            function: Arc::clone(function),
            waiter: Arc::new(calls.join(function)),
            failing: false,
            question: None,
        };
        let functions = functions.iter().map(look).collect();
        let mut looks = Self { calls: calls.clone(), functions, asked: JoinSet::new() };
        looks.ask_all();
        looks
    }

    /// One of the functions.
    pub(crate) fn of(&self, nth: usize) -> (&Arc<str>, &Waiter) {
        let Look { function, waiter, .. } = &self.functions[nth];
        (function, waiter)
    }

    /// The question by which calls of a function are taken, and since when it is asked. It stays the same until
    /// it is answered, as what was taken by one whose answer was lost is found by it.
    pub(crate) fn question(&mut self, nth: usize) -> (String, Instant) {
        let new = || (format!("{:032x}", crate::value::token::chance()), Instant::now());
        self.functions[nth].question.get_or_insert_with(new).clone()
    }

    pub(crate) fn answered(&mut self, nth: usize) {
        self.functions[nth].question = None;
    }

    /// Asks for one function after a pause, or when there is news.
    pub(crate) fn ask(&mut self, nth: usize, pause: Duration) {
        let Look { function, waiter, .. } = &self.functions[nth];
        let (function, waiter) = (Arc::clone(function), Arc::clone(waiter));
        let calls = self.calls.clone();
        // What was taken by a question that had no answer is not waited for until its lease is over.
        let open = self.functions[nth].question.is_some();
        // It holds up nobody else, and can be taken from at once.
        let alone = self.functions.len() == 1;
        self.asked.spawn(async move {
            if !pause.is_zero() {
                // Signal or not, it looks again.
                let _ = timeout(pause, waiter.signal()).await;
            }
            if alone {
                return (nth, Ok(Instant::now()));
            }
            let due = calls.look(&function, &waiter).await;
            (nth, due.map(|due| Instant::now() + if open { Duration::ZERO } else { due }))
        });
    }

    fn ask_all(&mut self) {
        self.asked = JoinSet::new();
        for nth in 0..self.functions.len() {
            self.ask(nth, Duration::ZERO);
        }
    }

    /// The next answer: of which function, and when something is due. Can be dropped at any time.
    pub(crate) async fn next(&mut self) -> (usize, Result<Instant, LockError>) {
        loop {
            match self.asked.join_next().await {
                Some(Ok(answered)) => return answered,
                // Those who asked are gone with the runtime of an earlier worker.
                Some(Err(_)) => self.ask_all(),
                None => pending().await,
            }
        }
    }

    /// Asks for a function that has answered.
    pub(crate) fn succeeded(&mut self, nth: usize, pause: Duration) {
        self.functions[nth].failing = false;
        self.ask(nth, pause);
    }

    /// Leaves a function alone for a while; gives the error back if there is no other.
    pub(crate) fn failed(&mut self, nth: usize, error: LockError) -> Option<LockError> {
        self.functions[nth].failing = true;
        if self.functions.iter().all(|look| look.failing) {
            // The worker makes the pause.
            self.ask(nth, Duration::ZERO);
            return Some(error);
        }
        let function = &self.functions[nth].function;
        match error.is_of_servers() && !self.calls.call_failed(&error) {
            true => tracing::debug!(%function, %error, "deferred calls could not be taken"),
            false => tracing::warn!(%function, %error, "deferred calls could not be taken"),
        }
        self.ask(nth, RETRY_DELAY);
        None
    }
}

/// What workers knew at the end of their turns.
#[derive(Debug, Default)]
pub(crate) struct IdleLooks(Mutex<Vec<Looks>>);

impl IdleLooks {
    /// What a worker of these functions knew, or nothing yet.
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
        // Nothing that runs under this mutex leaves them half changed.
        self.0.lock()
    }
}
