//! A caller in a cohort, until it has the lock or is refused.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use crate::engine::acquire_future::Acquire;
use crate::engine::acquisition::{Acquisition, Refusal};
use crate::engine::blocking::blocked;
use crate::engine::cohort::{Cohort, Found};
use crate::engine::core::Core;
use crate::engine::forming::FormingKey;
use crate::engine::telemetry::WaitingGauge;
use crate::engine::timer::Timer;
use crate::protocol::answer::Grant;
use crate::protocol::request::Request;
use crate::value::error::LockError;
use crate::value::parking::{park, unparks_here};
use crate::value::time::Moment;
use crate::value::unavailability::Unavailability;

/// Longest time for which a blocked thread does not look by itself.
const LONGEST_PARK: Duration = Duration::from_secs(60);
/// Longer waits have no timer.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Round trips for which a cohort forms at most, and the bounds of that time. The caller whose
/// request has to be answered first may not be polled.
const ROUND_TRIPS: u32 = 4;
const FORMS_MIN: Duration = Duration::from_millis(5);
const FORMS_MAX: Duration = Duration::from_millis(100);

/// Sends the request of the cohort that forms for a key, before the last request is answered.
type Sends = fn(&Arc<Core>, &FormingKey);

/// A caller in a cohort. Dropping it leaves the cohort.
pub(crate) struct Member {
    cohort: Arc<Cohort>,
    nth: usize,
    core: Arc<Core>,
    draft: Arc<Request>,
    /// The key of the cohort.
    key: FormingKey,
    /// Counts the caller, until it asks for itself.
    waiting: Option<WaitingGauge<Arc<Request>>>,
    timer: Option<Timer>,
    /// Until when the cohort may form, and what sends its request then.
    forms: Option<(Moment, Sends)>,
    /// It lets those join that are ready to, and sends the request then.
    yields: bool,
    /// Its wait is over, and it has some more time for a first answer.
    is_late: bool,
    /// It asks for itself.
    asking: Option<Box<Acquire>>,
}

type Granted = Result<(Acquisition, Grant), Refusal>;

impl Member {
    /// Joins a cohort, before its request is sent.
    pub(crate) fn new(
        cohort: Arc<Cohort>,
        core: &Arc<Core>,
        key: FormingKey,
        draft: Request,
        (soon, sends): (bool, Sends),
    ) -> Self {
        let (core, draft) = (Arc::clone(core), Arc::new(draft));
        let nth = cohort.join(Arc::clone(&draft));
        let waiting = Some(WaitingGauge::new(Arc::clone(&draft)));
        let round_trips = core.store().servers().round_trip(&draft.key) * ROUND_TRIPS;
        let longest = if soon { Duration::ZERO } else { round_trips.clamp(FORMS_MIN, FORMS_MAX) };
        let forms = Some((Moment::now().after(longest), sends));
        let (timer, is_late, asking, yields) = (None, false, None, soon);
        Self { cohort, nth, core, draft, key, waiting, timer, forms, yields, is_late, asking }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn draft(&self) -> &Arc<Request> {
        &self.draft
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Granted> {
        loop {
            if let Some(asking) = &mut self.asking {
                let (acquisition, answer) = ready!(asking.poll(cx));
                return Poll::Ready(answer.map(|grant| (acquisition, grant)));
            }
            match self.look(cx.waker()) {
                Some(Found::Nothing) => match self.alone().and_then(asking) {
                    Ok(asking) => self.asking = Some(Box::new(asking)),
                    Err(refusal) => return Poll::Ready(Err(refusal)),
                },
                Some(Found::Granted(acquisition, grant)) => {
                    return Poll::Ready(Ok((acquisition, grant)));
                }
                Some(Found::Refused(refusal)) => return Poll::Ready(Err(refusal)),
                None => {
                    if mem::take(&mut self.yields) {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    let Some(left) = self.left() else { return Poll::Pending };
                    if !left.is_zero() {
                        ready!(self.timer.get_or_insert_with(|| Timer::new(left)).poll(cx));
                    }
                    self.timer = None;
                    if !self.hurries()
                        && let Some(refusal) = self.over()
                    {
                        return Poll::Ready(Err(refusal));
                    }
                }
            }
        }
    }

    /// The same for blocking callers.
    pub(crate) fn block(&mut self) -> Granted {
        let waker = unparks_here();
        let found = blocked(|| {
            loop {
                if let Some(found) = self.look(&waker) {
                    return found;
                }
                let left = self.left();
                if left.is_some_and(|left| left.is_zero()) {
                    if !self.hurries()
                        && let Some(refusal) = self.over()
                    {
                        return Found::Refused(refusal);
                    }
                    continue;
                }
                park(left.unwrap_or(LONGEST_PARK).min(LONGEST_PARK));
            }
        });
        match found {
            Found::Granted(acquisition, grant) => Ok((acquisition, grant)),
            Found::Refused(refusal) => Err(refusal),
            Found::Nothing => {
                let mut acquisition = self.alone()?;
                match acquisition.acquire_blocking(None) {
                    Some(answer) => answer.map(|grant| (acquisition, grant)),
                    None => Err(Refusal::Failed(LockError::ShutDown)),
                }
            }
        }
    }

    fn look(&self, waker: &Waker) -> Option<Found> {
        Some(match self.cohort.look(self.nth, waker)? {
            // Too little of the lease may be left.
            Found::Granted(_, grant) if grant.sent.elapsed() >= grant.ttl / 2 => Found::Nothing,
            found => found,
        })
    }

    fn alone(&mut self) -> Result<Acquisition, Refusal> {
        self.waiting = None;
        let request = self.draft.with_new_token().map_err(Refusal::Failed)?;
        Ok(Acquisition::new(Arc::clone(&self.core), request))
    }

    /// How long until the caller has to do something: until its cohort has formed for long enough,
    /// or its time is over. `None` for ever.
    fn left(&self) -> Option<Duration> {
        let answer = self.core.answer_time();
        // A caller that does not wait has the time of two answers: one to the request before.
        let until = self.draft.until.unwrap_or(self.draft.asked.after(answer * 2));
        let until = match self.forms {
            Some((forms, _)) => until.min(forms),
            None if self.is_late => until.after(answer),
            None => until,
        };
        Some(until.since(Moment::now())).filter(|left| *left < LONGEST_WAIT)
    }

    /// Has the request of the cohort sent, if it forms still. Returns whether the time for that is
    /// over only now.
    fn hurries(&mut self) -> bool {
        let Some((_, sends)) = self.forms.take() else { return false };
        if !self.cohort.was_formed() {
            sends(&self.core, &self.key);
        }
        true
    }

    /// The caller's time is over. Returns its refusal, unless it has some more time for a first
    /// answer.
    fn over(&mut self) -> Option<Refusal> {
        let refusal = self.cohort.over(&self.draft);
        if refusal.is_none() && !self.is_late {
            self.is_late = true;
            return None;
        }
        Some(refusal.unwrap_or_else(|| {
            let detail = "no answer while the caller waited";
            let reason = Unavailability::Timeout;
            Refusal::Failed(LockError::unavailable_at(None, reason, detail))
        }))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.cohort.leave(self.nth));
    }
}

fn asking(acquisition: Acquisition) -> Result<Acquire, Refusal> {
    acquisition.acquire().map_err(|refused| refused.1)
}
