//! Requests of a line to the store, for its first waiter. The background thread sends them.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::FusedFuture;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::engine::acquisition::{Acquisition, PAUSE, Refusal};
use crate::engine::core::Core;
use crate::engine::line::{Line, Report, ToSend};
use crate::engine::turn::Tenure;
use crate::engine::waited::Waited;
use crate::protocol::answer::{Answer, Failed, Grant, Queueing};
use crate::protocol::lease;
use crate::protocol::request::Request;
use crate::store::dispatch::Store;
use crate::value::error::LockError;
use crate::value::sync::Mutex;
use crate::value::time::Moment;
use crate::value::unavailability::Unavailability;

/// Pause before a request that has waited for as long as one can is repeated.
const REPEATED: Duration = Duration::from_secs(2);

impl Line {
    /// Sends the request of the queue on the background thread, so that the answer is delivered
    /// even if no caller is polled.
    pub(crate) fn send(self: &Arc<Self>, core: &Arc<Core>, to_send: ToSend) {
        let open = Open { line: Arc::clone(self), number: to_send.number };
        let job = Arc::new(Mutex::new(Some((open, to_send))));
        // Kept here: a job that cannot be started must not be the last to drop it, because the
        // cleanup wants the mutex of the thread.
        let (kept, core_of_job) = (Arc::clone(&job), Arc::clone(core));
        let sent = core.background().spawn(move |store| async move {
            let taken = job.lock().take();
            if let Some((open, to_send)) = taken {
                ask(&open.line, core_of_job, to_send, store).await;
            }
        });
        if let Err(error) = sent {
            let refused = kept.lock().take();
            if let Some((open, to_send)) = refused {
                open.fails(&error);
                // Released in the background.
                drop(to_send);
            }
        }
    }

    fn granted(self: &Arc<Self>, number: u64, acquisition: Acquisition, grant: &Grant) {
        let now = Moment::now();
        let tenure = Tenure {
            began: now,
            sent: grant.sent,
            ends: lease::end_of(grant.sent, grant.ttl),
            kept_until: now.after(grant.ttl),
            fences: grant.fences.iter().next(),
            was_held: false,
        };
        self.with(|state| ((), state.queue.granted(number, tenure, acquisition, now)));
    }
}

/// A request of the queue, from before it is sent until it is over. If this is dropped earlier, as
/// by a panic, the request fails.
struct Open {
    line: Arc<Line>,
    number: u64,
}

impl Open {
    fn fails(&self, error: &LockError) {
        self.line.with(|state| ((), state.queue.failed(self.number, error, true)));
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let detail = "the request for the lock was dropped";
        self.fails(&LockError::unavailable(Unavailability::Local, detail));
    }
}

/// Requests the lock from the store, and waits for it until the request is withdrawn.
async fn ask(line: &Arc<Line>, core: Arc<Core>, to_send: ToSend, store: Arc<Store>) {
    let ToSend { mut before, mut report, number, draft, fenced, mut withdrawn } = to_send;
    // Several nodes have no common queue that the request could enter before the release.
    if store.servers().are_several() {
        release(&store, before.take(), report.take()).await;
    }
    let (mut wish, mut may_be_fenced) = ((draft.ttl, fenced), true);
    loop {
        let waited = Waited { line: Arc::clone(line), number };
        let request = draft.for_waiters(wish, Arc::new(waited)).map_err(Refusal::Failed);
        let begun = request.and_then(|request| {
            let acquisition = Acquisition::new(Arc::clone(&core), request);
            acquisition.enter()?;
            Ok(acquisition)
        });
        let mut acquisition = match begun {
            Ok(acquisition) => acquisition,
            Err(refusal) => {
                release(&store, before.take(), report.take()).await;
                return failed(line, number, refusal, &core);
            }
        };
        let mut awaited = before.as_ref().map(|before| before.request().ttl / 4);
        let mut released = pin!(release(&store, before.take(), report.take()).fuse());
        let outcome = loop {
            let outcome = {
                let request = acquisition.request();
                let wishes = || line.wish().map(|(ttl, fenced)| (ttl, fenced && may_be_fenced));
                let mut outcome =
                    pin!(answer(line, &core, &store, request, &mut withdrawn, wishes));
                // The request is sent before the release of the turn before, on the same
                // connection. So the lock is handed off to the first in the queue, and the key is
                // not free in between.
                let mut first = pin!(first_answer(line, &store, awaited));
                let early = poll_fn(|cx| match outcome.as_mut().poll(cx) {
                    Poll::Pending => first.as_mut().poll(cx).map(|()| None),
                    Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
                })
                .await;
                match early {
                    Some(outcome) => outcome,
                    None => beside(outcome, released.as_mut()).await,
                }
            };
            let RequestOutcome::Wish(other) = outcome else { break outcome };
            (wish, awaited) = (other, None);
            acquisition = acquisition.with_wish(other);
        };
        let is_withdrawn = matches!(outcome, RequestOutcome::Withdrawn);
        let refusal = match outcome {
            RequestOutcome::Withdrawn
            | RequestOutcome::Wish(_)
            | RequestOutcome::Answer(Ok(Answer::Lost(_))) => None,
            RequestOutcome::Answer(answer) => match acquisition.take_answer(answer) {
                Ok(grant) => {
                    // Delivered at once, as the release of the turn before may take longer.
                    line.granted(number, acquisition, &grant);
                    if !released.is_terminated() {
                        released.await;
                    }
                    return;
                }
                Err(refusal) => Some(refusal),
            },
        };
        if !released.is_terminated() {
            released.await;
        }
        let Some(refusal) = refusal else {
            if is_withdrawn {
                // Dropping the acquisition removes it from the store's queue.
                return;
            }
            _ = store.release(acquisition.request()).await;
            sleep(PAUSE).await;
            continue;
        };
        match refusal {
            // The callers of this process time out long before this wait ends.
            Refusal::Contended { queue: Queueing::Left(_) | Queueing::Outside, .. } => {
                sleep(REPEATED).await
            }
            Refusal::Failed(error) if wish.1 && !draft.fenced && is_of_a_wish(&error) => {
                (wish.1, may_be_fenced) = (false, false);
            }
            refusal => return failed(line, number, refusal, &core),
        }
    }
}

/// The outcome of a request.
enum RequestOutcome {
    Answer(Result<Answer, Failed>),
    /// No waiter of a single key is the next one any more.
    Withdrawn,
    /// The first waiter has changed, or a waiter wants a fence. The request has to be sent again
    /// with this ttl, and with a fence if the flag is set.
    Wish((Duration, bool)),
}

/// Sends a request, and waits for its outcome.
async fn answer(
    line: &Line,
    core: &Core,
    store: &Arc<Store>,
    request: &Arc<Request>,
    withdrawn: &mut oneshot::Receiver<()>,
    wishes: impl Fn() -> Option<(Duration, bool)>,
) -> RequestOutcome {
    let mut asked = store.acquire(request, core.shutdown());
    let mut rewished = pin!(line.rewished.notified());
    poll_fn(|cx| {
        if Pin::new(&mut *withdrawn).poll(cx).is_ready() {
            return Poll::Ready(RequestOutcome::Withdrawn);
        }
        if let Poll::Ready(answer) = asked.as_mut().poll(cx) {
            return Poll::Ready(RequestOutcome::Answer(answer));
        }
        while rewished.as_mut().poll(cx).is_ready() {
            rewished.set(line.rewished.notified());
        }
        // A request in flight is answered first. This function is polled again then.
        match wishes().filter(|wish| *wish != (request.ttl, request.fenced)) {
            Some(wish) if request.applied().is_known() => Poll::Ready(RequestOutcome::Wish(wish)),
            _ => Poll::Pending,
        }
    })
    .await
}

/// Waits for the answer to the first request of this line, because that request may have to
/// subscribe before it is sent. Later requests are sent at once. Does not wait for longer than
/// `longest`, so that the lock of the turn before is still held when it is released.
async fn first_answer(line: &Line, store: &Store, longest: Option<Duration>) {
    let answered = async {
        while !line.was_answered.load(Ordering::Relaxed) {
            line.answered.notified().await;
        }
    };
    if let Some(longest) = longest {
        let _ = timeout(store.servers().answer_time().min(longest), answered).await;
    }
}

/// Waits for `first`, and polls `other` meanwhile.
async fn beside<T>(
    mut first: Pin<&mut impl Future<Output = T>>,
    mut other: Pin<&mut impl FusedFuture<Output = ()>>,
) -> T {
    poll_fn(|cx| {
        let _ = other.as_mut().poll(cx);
        first.as_mut().poll(cx)
    })
    .await
}

/// Releases the lock of the turn before, and sends the answer of the store to the holder of that
/// turn.
async fn release(store: &Store, before: Option<Acquisition>, report: Option<Report>) {
    if let Some(before) = before {
        before.request().note_awaited();
        let released = before.released(store.release(before.request()).await);
        if let Some(report) = report {
            // Fails only when the holder does not wait for the answer.
            let _ = report.send(released);
        }
    }
}

fn failed(line: &Arc<Line>, number: u64, refusal: Refusal, core: &Core) {
    let (error, all) = match refusal {
        Refusal::Contended { key, holder, .. } => {
            let retry_after = core.retry_after(&key, u32::MAX, holder.left);
            (LockError::QueueFull { key, retry_after }, true)
        }
        // The error is of the first caller's ttl or fence.
        Refusal::Failed(error) if is_of_a_wish(&error) => (error, false),
        Refusal::Failed(error) => {
            let lasts = !error.is_transient();
            (error, lasts)
        }
    };
    line.with(|state| ((), state.queue.failed(number, &error, all)));
}

/// Whether an error is of a ttl or a fence, in which case the requests of other callers may
/// succeed.
fn is_of_a_wish(error: &LockError) -> bool {
    let reason = Unavailability::FencesUsedUp;
    matches!(error, LockError::InvalidTtl { .. })
        || matches!(error, LockError::Unavailable { reason: r, .. } if *r == reason)
}

#[cfg(test)]
mod tests {
    use futures_util::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn an_answer_does_not_wait_for_the_other_future() {
        assert_eq!(beside(pin!(ready(7)), pin!(pending())).await, 7);
        let mut other = pin!(ready(()).fuse());
        assert_eq!(beside(pin!(ready(7)), other.as_mut()).await, 7);
        assert!(other.is_terminated());
    }
}
