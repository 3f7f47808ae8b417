//! A cohort: callers of one process that share a key, and ask for it with one token. All of them
//! came before the token was sent, so none overtakes an exclusive waiter by the others' place in
//! the queue. The last of them to end releases the token.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::acquisition::{Acquire, Acquisition, Refusal};
use crate::engine::blocking::blocked;
use crate::engine::core::Core;
use crate::engine::forming::FormingKey;
use crate::engine::telemetry::WaitingGauge;
use crate::engine::timer::Timer;
use crate::protocol::answer::{Grant, Queueing};
use crate::protocol::other_holder::OtherHolder;
use crate::protocol::request::Request;
use crate::value::error::LockError;
use crate::value::parking::{park, unparks_here};
use crate::value::sync::Mutex;
use crate::value::time::Moment;
use crate::value::unavailability::Unavailability;

/// Longest time for which a blocked thread does not look by itself.
const LONGEST_PARK: Duration = Duration::from_secs(60);
/// Round trips for which a cohort forms at most, and the bounds of that time. The caller whose
/// request has to be answered first may not be polled.
const ROUND_TRIPS: u32 = 4;
const FORMS_MIN: Duration = Duration::from_millis(5);
const FORMS_MAX: Duration = Duration::from_millis(100);

/// Sends the request of the cohort that forms for a key.
type Sends = fn(&Arc<Core>, &FormingKey);

/// Callers that ask for a key together.
#[derive(Debug, Default)]
pub(crate) struct Cohort {
    state: Mutex<State>,
    /// A member has left, or has taken what was found.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    members: Vec<Slot>,
    /// The request was sent, or is about to be.
    is_formed: bool,
    /// The holder as last told, when, and the number of waiters ahead.
    contended: Option<(OtherHolder, Moment, u32)>,
}

#[derive(Debug)]
enum Slot {
    Waits(Arc<Request>, Option<Waker>),
    Found(Box<Found>),
    /// The member has left, or has what was found.
    Over,
}

/// What a member has been waiting for.
#[derive(Debug)]
enum Found {
    Granted(Acquisition, Grant),
    Refused(Refusal),
    /// The member has to ask for itself.
    Nothing,
}

impl Cohort {
    /// Takes a caller in, before the request is sent.
    pub(crate) fn join(self: Arc<Self>, core: &Arc<Core>, draft: Request, sends: Sends) -> Member {
        let draft = Arc::new(draft);
        let nth = {
            let mut state = self.state.lock();
            state.members.push(Slot::Waits(Arc::clone(&draft), None));
            state.members.len() - 1
        };
        let (core, waiting) = (Arc::clone(core), WaitingGauge::new(Arc::clone(&draft)));
        let round_trips = core.store().servers().round_trip(&draft.key) * ROUND_TRIPS;
        let forms_until = Moment::now().after(round_trips.clamp(FORMS_MIN, FORMS_MAX));
        let forms = Some((forms_until, sends));
        let (timer, is_late, asking) = (None, false, None);
        Member { cohort: self, nth, core, draft, waiting, timer, forms, is_late, asking }
    }

    /// The request is about to be sent. Returns whether anybody waits for it.
    pub(crate) fn is_formed(&self) -> bool {
        let mut state = self.state.lock();
        state.is_formed = true;
        state.members.iter().any(|slot| matches!(slot, Slot::Waits(..)))
    }

    /// The drafts of the members that wait.
    pub(crate) fn drafts(&self) -> Vec<Arc<Request>> {
        self.state.lock().drafts()
    }

    /// The lock is not free: members that do not wait are refused.
    pub(crate) fn contended(&self, holder: &OtherHolder, rank: u32) {
        self.answer(|state| {
            state.contended = Some((holder.clone(), Moment::now(), rank));
            state.find(|draft| draft.until.is_none().then(|| refused(draft, holder, None)))
        });
    }

    /// The members have the lock.
    pub(crate) fn granted(&self, acquisition: Acquisition, grant: &Grant) {
        self.answer(|state| {
            let kept_until = Moment::now().after(grant.ttl);
            let mut shares = acquisition.shared_by(&state.drafts(), kept_until).into_iter();
            let mut share = |share: Result<_, _>| match share {
                Ok(acquisition) => Found::Granted(acquisition, grant.without_fences()),
                Err(refusal) => Found::Refused(refusal),
            };
            state.find(|_| shares.next().map(&mut share))
        });
    }

    pub(crate) fn refused(&self, refusal: &Refusal) {
        self.answer(|state| {
            state.find(|draft| {
                Some(match refusal {
                    Refusal::Contended { holder, queue, .. } => match (queue, draft.until) {
                        (Queueing::Left(rank), Some(_)) => refused(draft, holder, Some(*rank)),
                        (Queueing::Full, Some(_)) => full(draft),
                        _ => refused(draft, holder, None),
                    },
                    Refusal::Failed(error) => Found::Refused(Refusal::Failed(error.clone())),
                })
            })
        });
    }

    /// The request is over without an answer: each member asks for itself.
    pub(crate) fn failed(&self) {
        self.answer(|state| state.find(|_| Some(Found::Nothing)));
    }

    /// Members that have not been polled since the grant lose it, and ask for themselves.
    pub(crate) fn evict(&self) {
        let mut evicted = Vec::new();
        for slot in &mut self.state.lock().members {
            if let Slot::Found(found) = slot
                && matches!(**found, Found::Granted(..))
            {
                evicted.push(mem::replace(&mut **found, Found::Nothing));
            }
        }
        // Dropped without the mutex: the last of them releases the lock.
        drop(evicted);
    }

    /// Waits until no member waits, nor has anything to take.
    pub(crate) async fn all_over(&self) {
        loop {
            let changed = self.changed.notified();
            if self.state.lock().members.iter().all(|slot| matches!(slot, Slot::Over)) {
                return;
            }
            changed.await;
        }
    }

    /// Changes the state, and wakes the members without the mutex.
    fn answer(&self, change: impl FnOnce(&mut State) -> Vec<Waker>) {
        let wakers = change(&mut self.state.lock());
        wakers.into_iter().for_each(Waker::wake);
    }

    fn leave(&self, nth: usize) -> Slot {
        let left = self.state.lock().members.get_mut(nth).map(|s| mem::replace(s, Slot::Over));
        self.changed.notify_one();
        left.unwrap_or(Slot::Over)
    }
}

impl State {
    fn drafts(&self) -> Vec<Arc<Request>> {
        let draft = |slot: &Slot| match slot {
            Slot::Waits(draft, _) => Some(Arc::clone(draft)),
            Slot::Found(_) | Slot::Over => None,
        };
        self.members.iter().filter_map(draft).collect()
    }

    /// Answers the members that wait for which `found` returns something. Returns their wakers.
    fn find(&mut self, mut found: impl FnMut(&Request) -> Option<Found>) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for slot in &mut self.members {
            if let Slot::Waits(draft, waker) = slot
                && let Some(found) = found(draft)
            {
                wakers.extend(waker.take());
                *slot = Slot::Found(Box::new(found));
            }
        }
        wakers
    }
}

/// A caller in a cohort. Dropping it leaves the cohort.
pub(crate) struct Member {
    cohort: Arc<Cohort>,
    nth: usize,
    core: Arc<Core>,
    draft: Arc<Request>,
    #[expect(dead_code, reason = "counts while the caller waits")]
    waiting: WaitingGauge<Arc<Request>>,
    timer: Option<Timer>,
    /// Until when the cohort may form, and what sends its request then.
    forms: Option<(Moment, Sends)>,
    /// Its wait is over, and it waits for a first answer.
    is_late: bool,
    /// It asks for itself.
    asking: Option<Box<Acquire>>,
}

type Granted = Result<(Acquisition, Grant), Refusal>;

impl Member {
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
                    let Some(left) = self.left() else { return Poll::Pending };
                    ready!(self.timer.get_or_insert_with(|| Timer::new(left)).poll(cx));
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
        let found = {
            let mut state = self.cohort.state.lock();
            match state.members.get_mut(self.nth) {
                Some(Slot::Waits(_, registered)) => {
                    registered.replace(waker.clone());
                    None
                }
                Some(Slot::Found(_)) => Some(()),
                Some(Slot::Over) | None => None,
            }
        };
        let Slot::Found(found) = found.map(|()| self.cohort.leave(self.nth))? else { return None };
        Some(match *found {
            // Too little of the lease may be left.
            Found::Granted(_, grant) if grant.sent.elapsed() >= grant.ttl / 2 => Found::Nothing,
            found => found,
        })
    }

    fn alone(&self) -> Result<Acquisition, Refusal> {
        let request = self.draft.with_new_token().map_err(Refusal::Failed)?;
        Ok(Acquisition::new(Arc::clone(&self.core), request))
    }

    /// How long until the caller has to do something: until its cohort has formed for long enough,
    /// or its wait is over. `None` for ever, or until the answer of a request that ends by itself.
    fn left(&self) -> Option<Duration> {
        let until = match (self.forms, self.draft.until) {
            (Some((forms, _)), until) => until.map_or(forms, |until| until.min(forms)),
            (None, Some(until)) if self.is_late => until.after(answer_time(&self.core)),
            (None, until) => until?,
        };
        Some(until.since(Moment::now())).filter(|left| *left < LONGEST_WAIT)
    }

    /// Has the request of the cohort sent, if it forms still. Returns whether the time for that is
    /// over only now.
    fn hurries(&mut self) -> bool {
        let Some((_, sends)) = self.forms.take() else { return false };
        if !self.cohort.state.lock().is_formed {
            sends(&self.core, &forming_key(&self.core, &self.draft));
        }
        true
    }

    /// The wait is over. Returns the refusal of the caller, unless the caller waits for a first
    /// answer.
    fn over(&mut self) -> Option<Refusal> {
        let state = self.cohort.state.lock();
        let refusal = match &state.contended {
            Some((holder, at, rank)) => {
                let left = holder.left.map(|left| left.saturating_sub(at.elapsed()));
                let holder = OtherHolder { left, ..holder.clone() };
                contended(&self.draft, holder, Queueing::Left(*rank))
            }
            None if !self.is_late => {
                self.is_late = true;
                return None;
            }
            None => {
                let detail = "no answer while the caller waited";
                let reason = Unavailability::Timeout;
                Refusal::Failed(LockError::unavailable_at(None, reason, detail))
            }
        };
        Some(refusal)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // What it was granted is released without the mutex.
        drop(self.cohort.leave(self.nth));
    }
}

/// The cohort of a request.
pub(crate) fn forming_key(core: &Core, request: &Request) -> FormingKey {
    let (ttl, process) = (request.ttl, core.process());
    FormingKey { key: request.key.as_str().into(), ttl, process }
}

/// Longer waits have no timer.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Longest time for one answer.
fn answer_time(core: &Core) -> Duration {
    core.store().servers().answer_time().max(Duration::from_secs(1)) * 2
}

fn asking(acquisition: Acquisition) -> Result<Acquire, Refusal> {
    acquisition.acquire().map_err(|refused| refused.1)
}

fn refused(draft: &Request, holder: &OtherHolder, rank: Option<u32>) -> Found {
    let queue = rank.map_or(Queueing::Outside, Queueing::Left);
    Found::Refused(contended(draft, holder.clone(), queue))
}

fn full(draft: &Request) -> Found {
    Found::Refused(contended(draft, OtherHolder::default(), Queueing::Full))
}

fn contended(draft: &Request, holder: OtherHolder, queue: Queueing) -> Refusal {
    Refusal::Contended { key: draft.key.clone(), holder, queue }
}
