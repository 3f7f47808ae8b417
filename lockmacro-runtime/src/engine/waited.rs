//! Observer of a line's request while the request waits at the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::line::{Contended, Line};
use crate::engine::local_queue::Effects;
use crate::protocol::other_holder::OtherHolder;
use crate::protocol::witness::Witness;
use crate::value::error::LockError;

/// A request of the queue, which gets answers while it waits.
#[derive(Debug)]
pub(crate) struct Waited {
    pub(crate) line: Arc<Line>,
    pub(crate) number: u64,
}

impl Witness for Waited {
    fn contended(&self, holder: &OtherHolder, rank: u32) {
        self.line.with(|state| {
            let is_first = state.last.is_none();
            state.note(holder, rank);
            let mut effects = state.queue.found_busy(self.number);
            if is_first {
                effects.wake.extend(state.queue.alarm().wake);
            }
            ((), effects)
        });
        self.line.was_answered.store(true, Ordering::Relaxed);
        self.line.answered.notify_one();
    }

    fn failed(&self, error: LockError) {
        self.unanswered(Err(error));
    }

    fn undecided(&self, holder: &OtherHolder) {
        self.unanswered(Ok(Contended::of(holder, 0)));
    }

    fn callers(&self) -> usize {
        self.line.state.lock().queue.len()
    }
}

impl Waited {
    /// It is not known whether another holder has the lock.
    fn unanswered(&self, last: Result<Contended, LockError>) {
        self.line.with(|state| {
            state.queue.unanswered(self.number);
            // A waiter whose wait is over still waits for a first answer.
            let effects = match state.last.replace(last) {
                None => state.queue.alarm(),
                Some(_) => Effects::default(),
            };
            ((), effects)
        });
    }
}
