//! A caller that waits in the line of a key.

use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use crate::engine::acquisition::{Acquisition, Refusal};
use crate::engine::core::Core;
use crate::engine::line::Place;
use crate::engine::local_queue::Found;
use crate::engine::telemetry::WaitingGauge;
use crate::engine::timer::Timer;
use crate::engine::turn::Tenure;
use crate::protocol::request::Request;
use crate::value::error::LockError;
use crate::value::time::Moment;

/// Lower bound of the longest time for which a caller waits for a release of its own process.
const RELEASE_MAX: Duration = Duration::from_secs(1);
/// Interval at which a caller checks whether that release is over.
const RELEASE_CHECK: Duration = Duration::from_millis(50);
/// A longer wait is treated as one without an end.
const LONGEST_TIMER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long a caller without a wait stays in the line of a lost server, whose waiters go on asking.
const LOST: Duration = Duration::from_millis(40);

/// A waiter in the line. Dropping it leaves the line.
pub(crate) struct InLine {
    place: Option<Place>,
    core: Arc<Core>,
    draft: WaitingGauge<Arc<Request>>,
    /// When it came to the line.
    since: Moment,
    /// Boxed, to keep the waiter small.
    timer: Option<Box<Timer>>,
    /// The wait is over, and the waiter has some more time for a first answer only.
    is_last: bool,
    /// Until when it waits for a release of its own process that no caller waits for.
    late: Option<Moment>,
}

/// A lock that a waiter has taken up. Dropping it passes the lock on.
pub(crate) struct TakenUp {
    /// Dropped first, so that the request of the next caller is sent before the lock is released.
    pub(crate) place: Standing,
    pub(crate) draft: Arc<Request>,
    pub(crate) tenure: Tenure,
    pub(crate) token: Acquisition,
}

/// The place of a caller that has the lock, until a guard is made of it. Dropping it lets the next
/// caller have the lock.
pub(crate) struct Standing(Option<Place>);

impl Standing {
    /// The place, for the guard.
    pub(crate) fn taken(mut self) -> Option<Place> {
        self.0.take()
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if let Some(place) = self.0.take() {
            place.ends();
        }
    }
}

impl InLine {
    pub(crate) fn new(place: Place, core: Arc<Core>, draft: Arc<Request>) -> Self {
        let (timer, is_last, late) = (None, false, None);
        let (place, draft, since) = (Some(place), WaitingGauge::new(draft), Moment::now());
        Self { place, core, draft, since, timer, is_last, late }
    }

    pub(crate) fn draft(&self) -> &Arc<Request> {
        &self.draft
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Waits on the caller's runtime.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<TakenUp, Refusal>> {
        loop {
            if let Poll::Ready(found) = self.look(cx.waker()) {
                return Poll::Ready(found);
            }
            if let Some(refusal) = self.answered_late() {
                return Poll::Ready(Err(refusal));
            }
            let Some(left) = self.left() else { return Poll::Pending };
            let timer = self.timer.get_or_insert_with(|| Box::new(Timer::new(left)));
            ready!(timer.poll(cx));
            self.timer = None;
            if let Some(refusal) = self.over() {
                return Poll::Ready(Err(refusal));
            }
        }
    }

    /// Checks whether the lock was passed to this waiter, or whether it is the waiter's turn.
    fn look(&mut self, waker: &Waker) -> Poll<Result<TakenUp, Refusal>> {
        if self.core.shutdown().is_closed() {
            return Poll::Ready(Err(Refusal::Failed(LockError::ShutDown)));
        }
        let Some(place) = &self.place else { return Poll::Pending };
        match place.poll(waker) {
            // The manager may have been shut down before the waker was registered.
            Found::Nothing if self.core.shutdown().is_closed() => {
                Poll::Ready(Err(Refusal::Failed(LockError::ShutDown)))
            }
            Found::Nothing => Poll::Pending,
            Found::Refused(verdict) => Poll::Ready(Err(place.refusal(verdict))),
            Found::Lock(tenure, token) => {
                let (place, draft) = (Standing(self.place.take()), Arc::clone(&self.draft));
                Poll::Ready(Ok(TakenUp { place, draft, tenure, token }))
            }
        }
    }

    /// How long the caller still waits; `None` for ever.
    fn left(&self) -> Option<Duration> {
        if let Some(late) = self.late {
            return Some(late.since(Moment::now()).min(RELEASE_CHECK));
        }
        let until = match (self.draft.until, self.is_last) {
            (Some(until), false) => until,
            // The waiter has this much longer for the answer to a request in flight.
            (Some(until), true) => until.after(self.core.answer_time()),
            (None, _) if self.fails_fast() => self.since.after(LOST),
            // One answer to another caller's request, and one to a request of the line after it.
            (None, _) => self.since.after(self.core.answer_time() * 2),
        };
        Some(until.since(Moment::now())).filter(|left| *left < LONGEST_TIMER)
    }

    /// Whether the waiters before this caller are known to have no answer.
    fn fails_fast(&self) -> bool {
        !self.core.defaults().asks_lost && self.core.store().servers().is_lost(&self.draft)
    }

    /// The refusal of a caller whose wait is over; `None` until there was a first answer.
    fn answered_late(&self) -> Option<Refusal> {
        let place = self.place.as_ref().filter(|_| self.is_last && self.late.is_none())?;
        place.over(self.draft.until.is_some(), false, self.since)
    }

    /// The wait is over. Returns the refusal of the caller, unless the caller waits for a first
    /// answer.
    fn over(&mut self) -> Option<Refusal> {
        let waits = self.draft.until.is_some();
        if waits && self.waits_for_a_release() {
            return None;
        }
        let place = self.place.as_ref()?;
        let refusal = place.over(waits, self.is_last || !waits, self.since);
        self.is_last = true;
        refusal
    }
}

impl InLine {
    /// Whether a release of this process is in flight, or was in flight until just now. Then the
    /// lock is not reported as busy to callers of the same process.
    fn waits_for_a_release(&mut self) -> bool {
        let (now, answer) = (Moment::now(), self.core.store().servers().answer_time());
        let Some(place) = &self.place else { return false };
        let is_in_flight = self.core.releasing().is_in_flight(&place.line.key);
        match self.late {
            None if !is_in_flight => return false,
            None => self.late = Some(now.after((answer * 4).max(RELEASE_MAX))),
            Some(late) if late <= now => return false,
            // Some more time for the grant that follows the release. Several servers are polled at
            // intervals, so they need more of it.
            Some(_) if !is_in_flight && !self.is_last => {
                let are_several = self.core.store().servers().are_several();
                let more = if are_several { RELEASE_MAX } else { RELEASE_CHECK };
                (self.is_last, self.late) = (true, Some(now.after(more)));
            }
            Some(_) => {}
        }
        true
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            place.leave();
        }
    }
}
