//! A caller that asks the store itself, because its process has nothing at the store.

use std::sync::Arc;

use crate::engine::acquire::outcome::Wanted;
use crate::engine::cleanup::acquisition::{Acquisition, Refusal};
use crate::engine::queue::shared_queue::in_queue::InQueue;
use crate::engine::telemetry;
use crate::protocol::answer::{Answer, Failed, Grant};
use crate::protocol::request::Request;

/// A caller that asks the store itself. Dropping it leaves the queue.
pub(crate) struct OwnRequest {
    caller: InQueue,
    /// Present until the caller asks no more.
    acquisition: Option<Acquisition>,
}

/// What becomes of the caller.
pub(crate) enum Answered {
    Granted(Acquisition, Grant, InQueue),
    /// The queue has gone on with the token, or asks with another one. The caller waits there, or
    /// arrives again.
    GoesOn(InQueue, Arc<Request>),
    Refused(InQueue, Arc<Request>, Refusal),
}

impl OwnRequest {
    pub(crate) fn new(caller: InQueue, acquisition: Acquisition) -> Self {
        telemetry::waits(acquisition.request().labels(), true);
        Self { caller, acquisition: Some(acquisition) }
    }

    /// Whether the queue has gone on with the token, because the caller was not polled in time.
    pub(crate) fn is_passed_over(&self) -> bool {
        self.acquisition.as_ref().is_none_or(|own| own.request().is_taken_over())
    }

    /// The request was answered.
    pub(crate) fn answered(
        mut self,
        answer: Result<Answer, Failed>,
        wanted: &Wanted,
    ) -> Option<Answered> {
        let own = self.take()?;
        let waits = own.request().until.is_some();
        if matches!(answer, Ok(Answer::Lost(_))) && (waits || !wanted.is_again) {
            // A request with this token may still arrive.
            own.request().note_released();
            return Some(
                self.asks_no_more(own, |caller, own| caller.not_granted(None, false, own)),
            );
        }
        let refusal = match own.take_answer(answer) {
            Ok(grant) => return Some(Answered::Granted(own, grant, self.caller.clone())),
            Err(refusal) => refusal,
        };
        let is_known = own.request().applied().is_known() && !own.request().only_if_free;
        let (holder, arrives) = match &refusal {
            Refusal::Contended { holder, .. } => {
                (Some(holder).filter(|_| is_known), waits || wanted.is_behind)
            }
            Refusal::Failed(error) => {
                (None, waits && error.is_transient() && !error.is_of_fences())
            }
        };
        let asked = self.asks_no_more(own, |caller, own| match waits && !arrives {
            true => caller.leave(Some(own)),
            false => caller.not_granted(holder, wanted.is_behind, own),
        });
        Some(match (arrives, asked) {
            (false, Answered::GoesOn(caller, request)) => {
                Answered::Refused(caller, request, refusal)
            }
            (_, asked) => asked,
        })
    }

    /// The queue has gone on with the token.
    pub(crate) fn passed_over(mut self) -> Option<Answered> {
        let own = self.take()?;
        Some(self.asks_no_more(own, |_, own| own.forget()))
    }

    /// The caller asks no more itself. It waits, or arrives again.
    fn asks_no_more(&self, own: Acquisition, tell: impl FnOnce(&InQueue, Acquisition)) -> Answered {
        let (caller, request) = (self.caller.clone(), Arc::clone(own.request()));
        tell(&caller, own);
        Answered::GoesOn(caller, request)
    }

    fn take(&mut self) -> Option<Acquisition> {
        let own = self.acquisition.take();
        own.inspect(|own| telemetry::waits(own.request().labels(), false))
    }
}

impl Drop for OwnRequest {
    fn drop(&mut self) {
        if let Some(own) = self.take() {
            self.caller.leave(Some(own));
        }
    }
}
