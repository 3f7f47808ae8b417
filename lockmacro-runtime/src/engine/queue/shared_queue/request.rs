//! The request of a key queue to the store. The background thread sends it, so that the answer is
//! delivered even if no caller is polled.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use scopeguard::{ScopeGuard, guard};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::{Before, KeyTenure, SharedQueue, ToSend};
use crate::engine::token::acquisition::{Acquisition, PAUSE, Refusal};
use crate::engine::token::in_flight::{InFlightGuard, TokenOwner as _};
use crate::protocol::answer::{Answer, Grant, Queueing};
use crate::protocol::ask::RequestEvents;
use crate::protocol::lease;
use crate::protocol::request::Request;
use crate::store::handle::Store;
use crate::sys::task::spawn;
use crate::sys::time::Moment;
use crate::value::error::{LockError, UnavailableReason};
use crate::value::holder::Holder;
use crate::value::limits::CONFIRM_WINDOW;

/// Pause before a request that has failed, or has waited for as long as one can, is repeated.
const REPEATED: Duration = Duration::from_secs(2);

impl SharedQueue {
    /// Sends the request of the queue.
    pub(super) fn send(self: &Arc<Self>, to_send: ToSend) {
        // If the task is dropped before its end, as where there is no thread, the waiters are sent
        // away.
        let open = guard((Arc::clone(self), to_send.question.clone()), |(queue, question)| {
            let detail = "the background thread could not request the lock";
            queue.refused(&question, LockError::because(UnavailableReason::Local, detail));
            queue.gone(&question);
        });
        let _ = self.core.background.spawn(move |store| async move {
            ask(&open.0, to_send, &store).await;
            ScopeGuard::into_inner(open);
        });
    }
}

/// Asks the store for the lock, until it is granted or the request is withdrawn.
async fn ask(queue: &Arc<SharedQueue>, to_send: ToSend, store: &Store) {
    let ToSend { question, acquisition, guard, mut before, mut withdrawn } = to_send;
    let acquisition = acquisition_of(queue, &question, acquisition, guard);
    // Several nodes have no common queue that the request could enter before the release, nor has a
    // store without a queue.
    if (store.facts.polls || !matches!(acquisition, Ok(Some(_))))
        && let Some(before) = before.take()
    {
        release(store.clone(), before).await;
    }
    let mut acquisition = match acquisition {
        Ok(Some(acquisition)) => acquisition,
        Ok(None) => return queue.spent(question),
        Err(error) => {
            queue.refused(&question, error);
            return Arc::clone(queue).gone(&question);
        }
    };
    loop {
        let mut asked = store.acquire(acquisition.request(), &queue.core.shutdown);
        let early = (&mut asked).now_or_never();
        // The request was sent before the release of the turn before, on the same connection. So
        // the lock is handed off to the first in the queue, and the key is not free in between.
        if let Some(before) = before.take() {
            spawn(release_after(Arc::clone(queue), store.clone(), before));
        }
        let answered = match early {
            Some(answer) => Some(answer),
            None => unless(&mut withdrawn, asked).await,
        };
        // Dropping the acquisition removes it from the store's queue.
        let Some(answer) = answered else { return };
        if let Ok(Answer::Stale(_)) = answer {
            _ = acquisition.release_at(store).await;
            sleep(PAUSE).await;
            return queue.spent(question);
        }
        match acquisition.take_answer(answer) {
            Ok(grant) => return queue.granted(tenure(question, &acquisition, &grant), acquisition),
            Err(Refusal::Contended { key, holder, queue: Queueing::Full }) => {
                let retry_after = queue.core.retry_after(&key, u32::MAX, holder.free_within);
                let full = LockError::QueueFull { key, retry_after };
                return queue.refused(&question, full);
            }
            Err(Refusal::Failed(error)) if !error.is_transient() || error.is_of_fences() => {
                return queue.refused(&question, error);
            }
            Err(Refusal::Failed(error)) => queue.unanswered_by(&question, Err(error)),
            Err(Refusal::Contended { .. }) => {}
        }
        if unless(&mut withdrawn, Box::pin(sleep(REPEATED))).await.is_none() {
            return;
        }
    }
}

/// The acquisition for a question; `None` if its token was released meanwhile. `sent`: that of the
/// caller that has asked it before.
fn acquisition_of(
    queue: &Arc<SharedQueue>,
    question: &Request,
    sent: Option<Acquisition>,
    guard: InFlightGuard,
) -> Result<Option<Acquisition>, LockError> {
    // All tokens without random bits are the same one: to the store, two processes were one holder.
    if question.token.secret == question.token.secret.spent() {
        let detail = "the system has no random bits for a token";
        return Err(LockError::because(UnavailableReason::Local, detail));
    }
    let is_first = question.token.is_of_queue;
    let Request { ask, token } = if is_first {
        question.clone()
    } else if let Some(taken_over) = question.take_over(Moment::now()) {
        taken_over
    } else {
        return Ok(None);
    };
    let asked = QueueEvents { queue: Arc::clone(queue), question: question.clone() };
    // A waiter that dies must not keep the lock for its whole ttl. Without a queue nothing is handed
    // off, and with replicas the lock is confirmed before its body.
    let store = &queue.core.store;
    let is_for_a_while = !store.facts.polls && !store.facts.is_replicated;
    let longest = if is_for_a_while { CONFIRM_WINDOW } else { Duration::MAX };
    let ask = Arc::new(ask.for_the_queue(longest, Arc::new(asked), Moment::now()));
    let request = Request { ask, token };
    if let Some(mut sent) = sent {
        return Ok(Some(sent.give_to(request)));
    }
    let core = Arc::clone(&queue.core);
    let owner = Arc::clone(queue) as _;
    // A token that a caller has sent is looked after even after a shutdown.
    if is_first && core.shutdown.is_closed() {
        return Err(LockError::SHUT_DOWN);
    }
    Ok(Some(Acquisition::new(guard, core, request, Some(owner))))
}

fn tenure(token: Request, acquisition: &Acquisition, grant: &Grant) -> KeyTenure {
    let now = Moment::now();
    KeyTenure {
        token,
        began: now,
        sent: grant.sent,
        ends: lease::end_of(grant.sent, grant.ttl),
        kept_until: now.after(acquisition.request().token.kept_for(grant.ttl, now)),
        fences: grant.fences.first().copied(),
    }
}

/// The output of `future`; `None` once the request is withdrawn.
async fn unless<F: Future + Unpin>(
    withdrawn: &mut oneshot::Receiver<()>,
    future: F,
) -> Option<F::Output> {
    match select(withdrawn, future).await {
        Either::Left(_) => None,
        Either::Right((output, _)) => Some(output),
    }
}

/// Releases the lock of the turn before once the request was sent. The first request of a queue may
/// have to subscribe before that, so its answer is waited for, but not for long: the lock has to be
/// held still when it is released.
async fn release_after(queue: Arc<SharedQueue>, store: Store, before: Before) {
    let longest = store.facts.answer_time().min(before.acquisition.request().ask.ttl / 4);
    let _ = timeout(longest, queue.answered.notified()).await;
    release(store, before).await;
}

/// Releases the lock of the turn before, and sends the answer of the store to the holder of that
/// turn.
async fn release(store: Store, Before { mut acquisition, report }: Before) {
    acquisition.request().token.note_awaited();
    let released = acquisition.release_at(&store).await;
    if let Some(report) = report {
        // Fails only when the holder does not wait for the answer.
        let _ = report.send(released);
    }
}

/// The request of a queue, which gets answers while it waits at the store.
#[derive(Debug)]
struct QueueEvents {
    queue: Arc<SharedQueue>,
    question: Request,
}

impl RequestEvents for QueueEvents {
    fn contended(&self, holder: &Holder, rank: u32) {
        self.queue.contended(&self.question, holder, rank);
    }

    fn undecided(&self, last: Result<&Holder, LockError>) {
        self.queue.unanswered_by(&self.question, last);
    }

    fn callers(&self) -> usize {
        self.queue.state.lock().queue.count()
    }

    fn is_fenced(&self) -> bool {
        self.queue.state.lock().queue.is_fenced()
    }

    fn usual_hold(&self) -> Option<Duration> {
        self.queue.core.hold_times.usual(&self.queue.key)
    }
}
