//! A caller that asks the store itself, because its process has nothing at the store.

use std::future::{poll_fn, ready};
use std::mem;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use scopeguard::{ScopeGuard, guard};
use tokio::time::timeout;

use crate::engine::queue::shared_queue::in_queue::InQueue;
use crate::engine::queue::shared_queue::{SharedQueue, unanswered};
use crate::engine::telemetry::WaitingGauge;
use crate::engine::token::acquisition::{Acquisition, Refusal};
use crate::protocol::answer::{Answer, Failed, Grant, StoreFuture};
use crate::protocol::request::Request;
use crate::store::handle::Store;
use crate::sys::time::Moment;
use crate::value::applied::Applied;

/// Shortest of the longest times for the own request of a caller that waits.
const SHORTEST: Duration = Duration::from_millis(1);

/// The outcome of a caller's own request.
pub(crate) enum Answered {
    Granted(Acquisition, Grant, InQueue),
    /// The queue has gone on with the token, or asks with another one. The caller waits there, or
    /// arrives again.
    GoesOn(InQueue),
    Refused(Refusal),
}

/// Asks the store for the lock of a caller. `is_again`: the caller has arrived again at its queue.
/// See [`Arrived::Asks`](crate::engine::queue::shared_queue::in_queue::Arrived) for `since`.
pub(crate) async fn ask(
    caller: InQueue,
    request: &Request,
    store: &Store,
    is_again: bool,
    since: Option<Moment>,
) -> Answered {
    let queue = Arc::clone(&caller.queue);
    let core = Arc::clone(&queue.core);
    let owner = Arc::clone(&queue) as _;
    let own = match core.enter() {
        Ok(guard) => Acquisition::new(guard, core, request.clone(), Some(owner)),
        Err(error) => {
            caller.leave(None);
            return Answered::Refused(Refusal::Failed(error));
        }
    };
    // A caller that is dropped leaves the queue.
    let asking = guard((caller, own), |(caller, own)| caller.leave(Some(own)));
    let answer = {
        let _waiting = WaitingGauge::new(&*request.ask);
        let mut asked = asked(store, request, &queue);
        let mut is_sent = false;
        poll_fn(|cx| {
            if request.token.is_taken_over() {
                return Poll::Ready(None);
            }
            let answer = asked.as_mut().poll(cx).map(Some);
            if mem::replace(&mut is_sent, true) && answer.is_pending() {
                asking.0.polled();
            }
            answer
        })
        .await
    };
    let (caller, own) = ScopeGuard::into_inner(asking);
    match answer {
        Some(answer) => answered(caller, own, answer, is_again, since),
        // The queue has gone on with the token, as the caller was not polled in time.
        None => {
            own.forget();
            Answered::GoesOn(caller)
        }
    }
}

/// The first request of a caller.
fn asked(
    store: &Store,
    request: &Request,
    queue: &SharedQueue,
) -> StoreFuture<'static, Result<Answer, Failed>> {
    let in_vain = |applied| Err(Failed { error: unanswered(), applied });
    let Some(until) = request.ask.until else {
        return store.acquire(request, &queue.core.shutdown);
    };
    // Of an attempt that ends early, several servers would have to be asked about its token first.
    // The queue's request has the time for an attempt.
    if store.facts.are_several {
        return Box::pin(ready(in_vain(Applied::No)));
    }
    // Longer than one answer may take, so that the store notices a server without an answer.
    let longest = (store.facts.answer_time() * 2).max(SHORTEST).min(until.since(Moment::now()));
    let answer = timeout(longest, store.acquire(request, &queue.core.shutdown));
    Box::pin(async move { answer.await.unwrap_or_else(|_| in_vain(Applied::Unknown)) })
}

fn answered(
    caller: InQueue,
    mut own: Acquisition,
    answer: Result<Answer, Failed>,
    is_again: bool,
    since: Option<Moment>,
) -> Answered {
    let waits = own.request().ask.until.is_some();
    if matches!(answer, Ok(Answer::Stale(_))) && (waits || !is_again) {
        // A request with this token may still arrive.
        own.request().token.note_released();
        caller.not_granted(None, None, own);
        return Answered::GoesOn(caller);
    }
    let refusal = match own.take_answer(answer) {
        Ok(grant) => return Answered::Granted(own, grant, caller),
        Err(refusal) => refusal,
    };
    let is_known = own.request().token.applied().is_known() && !own.request().ask.only_if_free;
    let (holder, goes_on) = match &refusal {
        Refusal::Contended { holder, .. } => (Some(&**holder), waits || since.is_none()),
        Refusal::Failed(error) => (None, waits && error.is_transient() && !error.is_of_fences()),
    };
    if waits && !goes_on {
        caller.leave(Some(own))
    } else {
        caller.not_granted(holder.filter(|_| is_known), since, own)
    }
    if goes_on { Answered::GoesOn(caller) } else { Answered::Refused(refusal) }
}
