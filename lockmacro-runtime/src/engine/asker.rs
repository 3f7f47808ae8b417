//! A caller that asks the store for itself.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::engine::acquisition::{Acquisition, Refusal};
use crate::engine::core::Core;
use crate::engine::head_of_lines::HeadOfLines;
use crate::engine::in_line::InLine;
use crate::engine::line::{Place, Places};
use crate::engine::timer::Timer;
use crate::value::time::Moment;

/// A caller that asks the store for itself. Dropping it lets the next callers ask the store.
pub(crate) struct Asker(At);

enum At {
    /// A caller of one key. `None` for a caller that does not wait. Boxed, to keep the other
    /// callers small.
    Line(Place, Option<Box<Wait>>),
    /// A caller of several keys, boxed for the same reason. `None` outside of every line.
    Lines(Option<Box<HeadOfLines>>),
}

struct Wait {
    until: Moment,
    /// Ends the caller's own request. The caller then waits in the line, which sends the request.
    timer: Option<Timer>,
}

impl Asker {
    pub(crate) fn new(place: Place, until: Option<Moment>) -> Self {
        Self(At::Line(place, until.map(|until| Box::new(Wait { until, timer: None }))))
    }

    /// A caller of several keys.
    pub(crate) fn of_several(heads: Box<HeadOfLines>) -> Self {
        Self(At::Lines(Some(heads)))
    }

    /// A caller that belongs to no line.
    pub(crate) fn outside() -> Self {
        Self(At::Lines(None))
    }

    /// Until when the caller waits in its line if the lock is busy; `None` for a caller that does
    /// not wait, and for a caller of several keys.
    pub(crate) fn until(&self) -> Option<Moment> {
        match &self.0 {
            At::Line(_, Some(wait)) => Some(wait.until),
            At::Line(_, None) | At::Lines(_) => None,
        }
    }

    /// Longest time for the own request of a caller that waits. This is longer than one answer may
    /// take, so that the store notices a server without an answer.
    pub(crate) fn longest(core: &Core) -> Duration {
        (core.store().servers().answer_time() * 2).max(Duration::from_millis(1))
    }

    /// Ready when the own request of a caller that waits has taken too long. The caller then has to
    /// wait in the line. `asked` is `None` while no request is in flight.
    pub(crate) fn poll_over(
        &mut self,
        asked: Option<&Acquisition>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let (wait, core) = match (&mut self.0, asked) {
            (At::Line(_, Some(wait)), Some(asked)) => (&mut **wait, asked.manager()),
            (At::Lines(heads), _) => {
                if let Some(heads) = heads {
                    heads.poll(cx);
                }
                return Poll::Pending;
            }
            (At::Line(..), _) => return Poll::Pending,
        };
        let Wait { until, timer } = wait;
        let timer = timer.get_or_insert_with(|| {
            let left = until.since(Moment::now());
            Timer::new(Self::longest(core).min(left))
        });
        timer.poll(cx)
    }

    /// Notes that the caller's thread is blocked until the answer.
    pub(crate) fn blocks(&self) {
        if let At::Lines(Some(heads)) = &self.0 {
            heads.block();
        }
    }

    /// The caller has the lock.
    pub(crate) fn granted(mut self) -> Places {
        match self.take() {
            At::Line(place, _) => Places::One(place),
            At::Lines(heads) => Places::Several(heads.map_or_else(Vec::new, |h| h.granted())),
        }
    }

    /// The lock was not granted. Returns the caller as a waiter, if it waits and another request
    /// may succeed.
    pub(crate) fn refused(mut self, asked: &Acquisition, refusal: &Refusal) -> Option<InLine> {
        let until = self.until();
        let place = match self.take() {
            At::Line(place, _) => place,
            At::Lines(heads) => {
                heads?.refused(refusal);
                return None;
            }
        };
        let draft = until.map(|until| Arc::new(asked.request().for_waiting(Some(until))));
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
        let until = self.until();
        let At::Line(place, _) = self.take() else { return None };
        let draft = Arc::new(asked.request().for_waiting(until));
        place.failed(Some(Arc::clone(&draft)));
        Some(InLine::new(place, Arc::clone(asked.manager()), draft))
    }

    fn take(&mut self) -> At {
        mem::replace(&mut self.0, At::Lines(None))
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        if let At::Line(place, _) = self.take() {
            place.failed(None);
        }
    }
}
