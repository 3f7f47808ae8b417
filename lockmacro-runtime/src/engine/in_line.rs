//! A caller at the line of its key: an [`Asker`] asks the store for itself, and an [`InLine`]
//! waits.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::time::sleep;

use crate::engine::acquisition::{Acquisition, Refusal};
use crate::engine::blocking::{blocked, unparks_here};
use crate::engine::core::Core;
use crate::engine::line::Place;
use crate::engine::local_queue::Found;
use crate::engine::telemetry::WaitingGauge;
use crate::engine::turn::Tenure;
use crate::protocol::request::Request;
use crate::value::error::LockError;
use crate::value::time::{Moment, park};

/// Lower bound of the longest time for which a caller waits for a release of its own process.
const RELEASE_MAX: Duration = Duration::from_secs(1);
/// Interval at which a caller checks whether that release is over.
const RELEASE_CHECK: Duration = Duration::from_millis(50);
/// A longer wait is treated as one without an end.
const LONGEST_TIMER: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Longest time for which a blocked thread sleeps.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// A caller that asks the store for itself. Dropping it lets the next caller ask the store.
pub(crate) struct Asker {
    /// `None` outside of a line.
    place: Option<Place>,
    /// `None` for a caller that does not wait. Boxed, to keep the other callers small.
    wait: Option<Box<Wait>>,
}

struct Wait {
    until: Moment,
    /// Ends the caller's own request. The caller then waits in the line, which sends the request.
    timer: Option<Timer>,
}

/// A timer of tokio. Its type is hidden: otherwise the compiler would have to prove for every
/// function with a lock that each part of the timer is `Send`.
struct Timer(Pin<Box<dyn Future<Output = ()> + Send>>);

impl Timer {
    fn new(time: Duration) -> Self {
        Self(Box::pin(sleep(time)))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

/// A waiter in the line. Dropping it leaves the line.
pub(crate) struct InLine {
    place: Option<Place>,
    core: Arc<Core>,
    draft: WaitingGauge<Arc<Request>>,
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
        if let Some(place) = self.0.take()
            && !place.line.is_a_copy()
        {
            place.release(None, || None);
        }
    }
}

impl Asker {
    pub(crate) fn new(place: Place, until: Option<Moment>) -> Self {
        let wait = until.map(|until| Box::new(Wait { until, timer: None }));
        Self { place: Some(place), wait }
    }

    /// A caller that belongs to no line.
    pub(crate) fn outside() -> Self {
        Self { place: None, wait: None }
    }

    /// Until when the caller waits; `None` for a caller that does not wait.
    pub(crate) fn until(&self) -> Option<Moment> {
        self.wait.as_ref().map(|wait| wait.until)
    }

    /// Longest time for the own request of a caller that waits. This is longer than one answer may
    /// take, so that the store notices a server without an answer.
    pub(crate) fn longest(core: &Core) -> Duration {
        (core.store().servers().answer_time() * 2).max(Duration::from_millis(1))
    }

    /// Longest time in a line for a caller that does not wait: one answer to another caller's
    /// request, and one to a request of the line after it.
    fn longest_of_line(core: &Core) -> Duration {
        Self::answer_time(core) * 2
    }

    /// Longest time for one answer. A store in memory answers at once, but the background thread
    /// that sends the request may be slower.
    fn answer_time(core: &Core) -> Duration {
        match core.store().servers().answer_time() {
            Duration::ZERO => RELEASE_MAX,
            answer => answer,
        }
    }

    /// Ready when the own request of a caller that waits has taken too long. The caller then has to
    /// wait in the line.
    pub(crate) fn poll_over(&mut self, core: &Core, cx: &mut Context<'_>) -> Poll<()> {
        let Some(wait) = &mut self.wait else { return Poll::Pending };
        let Wait { until, timer } = &mut **wait;
        let timer = timer.get_or_insert_with(|| {
            let left = until.since(Moment::now());
            Timer::new(Self::longest(core).min(left))
        });
        timer.poll(cx)
    }

    /// The caller has the lock.
    pub(crate) fn granted(mut self) -> Option<Place> {
        self.place.take()
    }

    /// The lock was not granted. Returns the caller as a waiter, if it waits and another request
    /// may succeed.
    pub(crate) fn refused(mut self, asked: &Acquisition, refusal: &Refusal) -> Option<InLine> {
        let place = self.place.take()?;
        let draft = self.until().map(|until| Arc::new(asked.request().for_waiting(Some(until))));
        let draft = match refusal {
            // The holder is not known.
            Refusal::Contended { .. } if asked.request().only_if_free => {
                place.failed(draft.clone());
                draft
            }
            Refusal::Contended { holder, .. } => {
                place.refused(holder, draft.clone());
                draft
            }
            Refusal::Failed(error) => {
                let draft = draft.filter(|_| error.is_transient());
                place.failed(draft.clone());
                draft
            }
        };
        Some(InLine::new(place, Arc::clone(asked.manager()), draft?))
    }

    /// The caller has got no answer in time, and waits in the line.
    pub(crate) fn unanswered(mut self, asked: &Acquisition) -> Option<InLine> {
        let place = self.place.take()?;
        let draft = Arc::new(asked.request().for_waiting(self.until()));
        place.failed(Some(Arc::clone(&draft)));
        Some(InLine::new(place, Arc::clone(asked.manager()), draft))
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            place.failed(None);
        }
    }
}

impl InLine {
    pub(crate) fn new(place: Place, core: Arc<Core>, draft: Arc<Request>) -> Self {
        let (timer, is_last, late) = (None, false, None);
        let (place, draft) = (Some(place), WaitingGauge::new(draft));
        Self { place, core, draft, timer, is_last, late }
    }

    pub(crate) fn draft(&self) -> &Arc<Request> {
        &self.draft
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Waits for the lock on the caller's runtime.
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

    /// The same for blocking callers.
    pub(crate) fn block(&mut self) -> Result<TakenUp, Refusal> {
        let waker = unparks_here();
        blocked(|| {
            loop {
                if let Poll::Ready(found) = self.look(&waker) {
                    return found;
                }
                if let Some(refusal) = self.answered_late() {
                    return Err(refusal);
                }
                let left = self.left().unwrap_or(LONGEST_SLEEP);
                let until = Moment::now().after(left);
                park(left.min(LONGEST_SLEEP));
                if Moment::now() >= until
                    && self.left().is_some()
                    && let Some(refusal) = self.over()
                {
                    return Err(refusal);
                }
            }
        })
    }

    /// Checks whether the lock was passed to this waiter.
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
            Found::Refused(verdict) => Poll::Ready(Err(place.refusal(&self.draft.key, verdict))),
            Found::Lock(tenure, token) => match self.place.take() {
                Some(place) => {
                    let (place, draft) = (Standing(Some(place)), Arc::clone(&self.draft));
                    Poll::Ready(Ok(TakenUp { place, draft, tenure, token }))
                }
                None => Poll::Pending,
            },
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
            (Some(until), true) => until.after(Asker::answer_time(&self.core)),
            (None, _) => self.draft.asked.after(Asker::longest_of_line(&self.core)),
        };
        Some(until.since(Moment::now())).filter(|left| *left < LONGEST_TIMER)
    }

    /// The refusal of a caller whose wait is over; `None` until there was a first answer.
    fn answered_late(&self) -> Option<Refusal> {
        let place = self.place.as_ref().filter(|_| self.is_last && self.late.is_none())?;
        place.over(&self.draft.key, self.draft.until.is_some(), false)
    }

    /// The wait is over. Returns the refusal of the caller, unless the caller waits for a first
    /// answer.
    fn over(&mut self) -> Option<Refusal> {
        let waits = self.draft.until.is_some();
        if waits && self.waits_for_a_release() {
            return None;
        }
        let place = self.place.as_ref()?;
        let refusal = place.over(&self.draft.key, waits, self.is_last || !waits);
        self.is_last = true;
        refusal
    }
}

impl InLine {
    /// Whether a release of this process is in flight, or was in flight until just now. Then the
    /// lock is not reported as busy to callers of the same process.
    fn waits_for_a_release(&mut self) -> bool {
        let (now, answer) = (Moment::now(), self.core.store().servers().answer_time());
        let is_in_flight = self.core.releasing().is_in_flight(&self.draft.key);
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
