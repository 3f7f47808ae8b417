//! A caller that asks the store for itself.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::engine::acquisition::{Acquisition, Refusal};
use crate::engine::core::Core;
use crate::engine::in_line::InLine;
use crate::engine::line::Place;
use crate::engine::timer::Timer;
use crate::protocol::request::Request;
use crate::value::time::Moment;

/// A caller that asks the store for itself. Dropping it lets the next callers ask the store.
pub(crate) struct Asker {
    /// `None` outside of every line.
    place: Option<Place>,
    /// `None` for a caller that does not wait. Boxed, to keep the other callers small.
    wait: Option<Box<Wait>>,
}

struct Wait {
    until: Moment,
    /// Ends the caller's own request. The caller then waits in the line, which sends the request.
    timer: Option<Timer>,
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

    /// Whether the caller waits in its line if the lock is busy.
    pub(crate) fn waits_in_line(&self) -> bool {
        self.wait.is_some()
    }

    /// Longest time for the own request of a caller that waits. This is longer than one answer may
    /// take, so that the store notices a server without an answer.
    fn longest(core: &Core) -> Duration {
        (core.store().servers().answer_time() * 2).max(Duration::from_millis(1))
    }

    /// Ready when the own request of a caller that waits has taken too long. The caller then has to
    /// wait in the line. `asked` is `None` while no request is in flight.
    pub(crate) fn poll_over(
        &mut self,
        asked: Option<&Acquisition>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let (Some(wait), Some(asked)) = (&mut self.wait, asked) else { return Poll::Pending };
        let Wait { until, timer } = &mut **wait;
        let timer = timer.get_or_insert_with(|| {
            let left = until.since(Moment::now());
            Timer::new(Self::longest(asked.manager()).min(left))
        });
        timer.poll(cx)
    }

    /// The caller has the lock. Returns its place in the line.
    pub(crate) fn granted(mut self) -> Option<Place> {
        self.place.take()
    }

    /// The lock was not granted. Returns the caller as a waiter, if it waits and another request
    /// may succeed.
    pub(crate) fn refused(self, asked: &Acquisition, refusal: &Refusal) -> Option<InLine> {
        let waits = match refusal {
            Refusal::Contended { .. } => true,
            Refusal::Failed(error) => error.is_transient(),
        };
        let holder = match refusal {
            // The holder is known.
            Refusal::Contended { holder, .. } if !asked.request().only_if_free => Some(holder),
            _ => None,
        };
        self.waits_on(asked, waits, |place, draft| match holder {
            Some(holder) => place.refused(holder, draft),
            None => place.failed(draft),
        })
    }

    /// The caller has got no answer in time, and waits in the line.
    pub(crate) fn unanswered(self, asked: &Acquisition) -> Option<InLine> {
        self.waits_on(asked, true, Place::failed)
    }

    /// Tells the line that the caller asks no more, and returns the caller as a waiter.
    fn waits_on(
        mut self,
        asked: &Acquisition,
        waits: bool,
        tell: impl FnOnce(&Place, Option<Arc<Request>>),
    ) -> Option<InLine> {
        let (place, wait) = (self.place.take()?, self.wait.take());
        let until = wait.filter(|_| waits).map(|wait| wait.until);
        let draft = until.map(|until| Arc::new(asked.request().for_waiting(Some(until))));
        tell(&place, draft.clone());
        Some(InLine::new(place, Arc::clone(asked.manager()), draft?))
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            place.failed(None);
        }
    }
}
