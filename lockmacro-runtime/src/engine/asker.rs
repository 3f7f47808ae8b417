//! A caller that asks the store itself, because its process has nothing at the store.

use std::task::{Context, Poll};
use std::time::Duration;

use crate::engine::acquisition::{Acquisition, Refusal};
use crate::engine::queue::shared_queue::{InQueue, Standing};
use crate::engine::timer::Timer;
use crate::protocol::answer::{Answer, Failed, Grant};
use crate::value::time::Moment;

/// Shortest of the longest times for the own request of a caller that waits.
const SHORTEST: Duration = Duration::from_millis(1);

/// A caller that asks the store itself. Dropping it leaves the queue.
pub(crate) struct Asker {
    caller: InQueue,
    /// Present until the caller asks no more.
    acquisition: Option<Acquisition>,
    /// A release of this process was without an answer when the caller arrived.
    is_behind: bool,
    /// Ends the own request of a caller that waits. Boxed, to keep the other callers small.
    timer: Option<Box<Timer>>,
}

/// What becomes of the caller.
pub(crate) enum Answered {
    Granted(Acquisition, Grant, Standing),
    /// The queue has gone on with the token, or asks with another one. The caller waits there.
    Waits(InQueue),
    /// A caller that does not wait arrives again.
    Again(InQueue),
    Refused(InQueue, Refusal),
}

impl Asker {
    pub(crate) fn new(caller: InQueue, acquisition: Acquisition, is_behind: bool) -> Self {
        Self { caller, acquisition: Some(acquisition), is_behind, timer: None }
    }

    fn waits(&self) -> bool {
        self.acquisition.as_ref().is_some_and(|own| own.request().until.is_some())
    }

    /// Whether the queue has gone on with the token, because the caller was not polled in time.
    pub(crate) fn is_passed_over(&self) -> bool {
        self.acquisition.as_ref().is_none_or(|own| own.request().was_released())
    }

    /// Ready when the own request of a caller that waits has taken too long. This is longer than
    /// one answer may take, so that the store notices a server without an answer.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(own) = &self.acquisition else { return Poll::Pending };
        let Some(until) = own.request().until else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| {
            let longest = own.manager().store().servers().answer_time() * 2;
            let left = until.since(Moment::now());
            Box::new(Timer::new(longest.max(SHORTEST).min(left)))
        });
        timer.poll(cx)
    }

    /// The request was answered.
    pub(crate) fn answered(mut self, answer: Result<Answer, Failed>, is_again: bool) -> Answered {
        let waits = self.waits();
        if matches!(answer, Ok(Answer::Lost(_))) && (waits || !is_again) {
            return self.asks_no_more(|caller, own| match waits {
                true => caller.spent(own),
                false => caller.leave(Some(own)),
            });
        }
        let Some(own) = self.acquisition.take() else {
            return Answered::Again(self.caller.clone());
        };
        let refusal = match own.take_answer(answer) {
            Ok(grant) => match self.caller.granted(own.request(), grant.ttl) {
                Some(caller) => return Answered::Granted(own, grant, caller),
                None => {
                    self.acquisition = Some(own);
                    return self.passed_over();
                }
            },
            Err(refusal) => refusal,
        };
        let is_known = own.request().applied().is_known() && !own.request().only_if_free;
        let (holder, arrives) = match &refusal {
            Refusal::Contended { holder, .. } => {
                (Some(holder).filter(|_| is_known), waits || self.is_behind)
            }
            Refusal::Failed(error) => {
                (None, waits && error.is_transient() && !error.is_of_fences())
            }
        };
        self.acquisition = Some(own);
        let asked = self.asks_no_more(|caller, own| match waits && !arrives {
            true => caller.leave(Some(own)),
            false => caller.not_granted(holder, own),
        });
        match (arrives, asked) {
            (false, Answered::Waits(caller) | Answered::Again(caller)) => {
                Answered::Refused(caller, refusal)
            }
            (_, asked) => asked,
        }
    }

    /// The caller has got no answer in time.
    pub(crate) fn unanswered(mut self) -> Answered {
        self.asks_no_more(|caller, own| caller.not_granted(None, own))
    }

    /// The queue has gone on with the token.
    pub(crate) fn passed_over(mut self) -> Answered {
        self.asks_no_more(|_, own| own.forget())
    }

    /// The caller asks no more itself. It waits, or arrives again.
    fn asks_no_more(&mut self, tell: impl FnOnce(&InQueue, Acquisition)) -> Answered {
        let waits = self.waits();
        if let Some(own) = self.acquisition.take() {
            tell(&self.caller, own);
        }
        let caller = self.caller.clone();
        if waits { Answered::Waits(caller) } else { Answered::Again(caller) }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        if let Some(own) = self.acquisition.take() {
            self.caller.leave(Some(own));
        }
    }
}
