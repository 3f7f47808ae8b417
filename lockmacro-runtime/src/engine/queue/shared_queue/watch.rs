//! The watch of a key queue: while there are waiters, the background thread tells the queue the
//! time, and notices a holder that has lost the lock.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::{LocalHolder, QueueState, SharedQueue};
use crate::engine::queue::key_queue::Event;
use crate::engine::telemetry;
use crate::engine::thread::timers::{Over, Timed};
use crate::engine::token::acquisition::{Acquisition, Refusal};
use crate::protocol::answer::Queueing;
use crate::store::handle::Store;
use crate::sys::time::Moment;

/// Longest time between two checks of a queue with waiters.
const LOOK: Duration = Duration::from_secs(2);
/// A wait of this time is reported, and again each time it has doubled, or this has passed.
const LONG: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(10 * 60);

impl SharedQueue {
    /// Has the queue looked at when something is due. Returns the holder, if there are waiters, and
    /// whether [`start_watch`](Self::start_watch) has to follow without the mutex.
    pub(super) fn watch(
        self: &Arc<Self>,
        state: &mut QueueState,
    ) -> (Option<Arc<dyn LocalHolder>>, bool) {
        // A caller that asks alone delays nobody.
        if !state.queue.has_other_waiters() {
            return (None, false);
        }
        let mut starts = false;
        let held = state.queue.holder().and(state.holder.as_ref()).and_then(Weak::upgrade);
        if let Some(due) = state.queue.due().or(held.as_ref().map(|held| held.ends())) {
            match &mut state.watched {
                Some((enrolled, next)) if due < *next => {
                    enrolled.sooner(due);
                    *next = due;
                }
                // A look that comes too early plans the next one.
                Some(_) => {}
                None => {
                    let watched = Arc::downgrade(self) as _;
                    let now = Moment::now();
                    // A long wait is reported even where nothing is due before.
                    let due = due.min(now.after(LONG));
                    let (enrolled, is_first) = self.core.background.enroll(watched, now, Some(due));
                    state.watched = enrolled.map(|enrolled| (enrolled, due));
                    starts = is_first;
                }
            }
        }
        (held, starts)
    }

    /// Starts what looks at the queue. The first start of a manager makes a thread and a runtime:
    /// under the mutex it kept all callers of the key waiting.
    pub(super) fn start_watch(&self) {
        if self.core.background.start().is_err() {
            // Nothing looks at it then, so the next event has to try again.
            self.state.lock().watched = None;
        }
    }

    /// Tells the queue the time, if something is due. Returns whether something will be.
    pub(crate) fn time(self: &Arc<Self>) -> bool {
        let due = self.state.lock().queue.due();
        if due.is_none_or(|due| due > Moment::now()) {
            return due.is_some();
        }
        // Before its caller finds out that it has the token no more.
        let guard = self.core.in_flight.join();
        let left = self.on(None, |_| Event::Time);
        // A caller that was not polled has asked with this token, and nobody else wants it.
        let token = left.release.filter(|question| !question.token.is_of_queue);
        if let Some(request) = token.and_then(|question| question.take_over(Moment::now())) {
            let core = Arc::clone(&self.core);
            let owner = Arc::clone(self) as _;
            drop(Acquisition::new(guard, core, request, Some(owner)));
        }
        false
    }
}

impl SharedQueue {
    /// Reports the wait of the first caller for a known holder, if it takes long: once for all
    /// callers of the process.
    pub(super) fn report_long_wait(&self) {
        let mut held = None;
        let now = Moment::now();
        let (first, refusal, callers) = {
            let mut state = self.state.lock();
            let is_known = state.queue.holder().is_some() || matches!(state.last, Some(Ok(_)));
            let Some(first) = state.queue.first().filter(|_| is_known).cloned() else { return };
            let waited = now.since(first.asked);
            if waited < LONG || state.reports_from.is_some_and(|from| now < from) {
                return;
            }
            state.reports_from = Some(now.after(waited.min(LONGEST)));
            (first, self.busy(&state, Queueing::Outside, &mut held), state.queue.count())
        };
        if let Refusal::Contended { holder, .. } = refusal {
            let usual = self.core.hold_times.usual(&self.key);
            telemetry::report_long_wait(&first, &holder, usual, callers);
        }
    }
}

impl Timed for SharedQueue {
    fn run<'a>(self: Arc<Self>, _: &'a Store, over: &'a Over<'a>) -> BoxFuture<'a, ()> {
        async move {
            // This reports a loss to the queue.
            self.holder().and_then(|holder| holder.remaining_lease());
            self.time();
            self.report_long_wait();
            let ends = self.holder().map(|holder| holder.ends());
            let now = Moment::now();
            // A caller that arrives from here on finds that the queue is looked at, or that it is
            // not.
            let mut state = self.state.lock();
            let due = state.queue.due().or(ends).map(|due| due.since(now));
            let next = now.after(due.unwrap_or(LOOK).clamp(Duration::from_millis(1), LOOK));
            // After a shutdown no caller waits for a lock, even if its future was not polled since.
            let is_open = state.queue.offered().is_some() || !self.core.shutdown.is_closed();
            if !state.queue.has_other_waiters() || !is_open {
                state.watched = None;
            } else if let Some((_, at)) = &mut state.watched {
                *at = next;
                over(Some(next));
            }
        }
        .boxed()
    }
}
