//! What the background thread does for a line: it asks the store for the first waiter, and has
//! passes lapse that nobody takes up.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::engine::acquisition::{Acquisition, PAUSE, Refusal};
use crate::engine::core::Core;
use crate::engine::line::{Line, Report, ToSend, Waited};
use crate::engine::turn::Tenure;
use crate::protocol::answer::{Answer, Failed, Grant, Queueing};
use crate::protocol::lease;
use crate::store::dispatch::Store;
use crate::value::error::LockError;
use crate::value::time::Moment;
use crate::value::unavailability::Unavailability;

/// Longest time between two looks at a line with waiters.
const LOOK: Duration = Duration::from_secs(2);

impl Line {
    /// Sends the request of the queue, by the background thread: its answer is delivered whichever
    /// callers are polled, or gone.
    pub(crate) fn send(self: &Arc<Self>, core: &Arc<Core>, to_send: ToSend) {
        let (line, core_of_job, number) = (Arc::clone(self), Arc::clone(core), to_send.number);
        let sent = core.background().spawn(move |store| ask(line, core_of_job, to_send, store));
        if let Err(error) = sent {
            self.with(|state| ((), state.queue.failed(number, &error, true)));
        }
    }

    /// Starts the watch of a line with waiters.
    pub(crate) fn start_watch(self: &Arc<Self>, core: &Arc<Core>) {
        let line = Arc::clone(self);
        if core.background().spawn(move |_| watch(line)).is_err() {
            self.state.lock().watched = None;
        }
    }

    fn granted(self: &Arc<Self>, number: u64, acquisition: Acquisition, grant: &Grant) {
        let now = Moment::now();
        let tenure = Tenure {
            began: now,
            sent: grant.sent,
            ends: lease::end_of(grant.sent, grant.ttl),
            kept_until: now.after(grant.ttl),
            fence: grant.fences.iter().next(),
            was_held: false,
        };
        self.with(|state| ((), state.queue.granted(number, tenure, acquisition, now)));
    }
}

/// Asks the store for a lock, and waits for it, until there is no waiter any more.
async fn ask(line: Arc<Line>, core: Arc<Core>, to_send: ToSend, store: Arc<Store>) {
    let ToSend { mut before, mut report, number, draft, mut fenced, mut withdrawn } = to_send;
    // There is no queue over several nodes, in which to be before the release.
    if store.servers().are_several() {
        release(&store, before.take(), report.take()).await;
    }
    loop {
        let waited = Waited { line: Arc::clone(&line), number };
        let acquisition = draft
            .for_waiters(fenced, Arc::new(waited))
            .map(|request| Acquisition::new(Arc::clone(&core), request));
        let begun = acquisition.map_err(Refusal::Failed).and_then(|acquisition| {
            acquisition.enter()?;
            Ok(acquisition)
        });
        let acquisition = match begun {
            Ok(acquisition) => acquisition,
            Err(refusal) => return failed(&line, number, refusal, &core),
        };
        let answer = {
            let mut asked = pin!(answer(&core, &store, &acquisition, &mut withdrawn));
            // Sent before the release of the turn before, by the same connection: the lock goes to
            // the first in the queue then, and the key is not free in between.
            let mut first = pin!(first_answer(&line, &store, before.is_some()));
            let early = poll_fn(|cx| match asked.as_mut().poll(cx) {
                Poll::Pending => first.as_mut().poll(cx).map(|()| Poll::Pending),
                answer => Poll::Ready(answer),
            })
            .await;
            let released = release(&store, before.take(), report.take());
            match early {
                Poll::Ready(answer) => {
                    released.await;
                    answer
                }
                Poll::Pending => join(asked, released).await,
            }
        };
        let Some(answer) = answer else {
            // Dropping the acquisition removes it from the store's queue.
            return;
        };
        let refusal = match answer {
            Ok(Answer::Lost(_)) => {
                _ = store.release(acquisition.request()).await;
                sleep(PAUSE).await;
                continue;
            }
            answer => match acquisition.take_answer(answer) {
                Ok(grant) => return line.granted(number, acquisition, &grant),
                Err(refusal) => refusal,
            },
        };
        match refusal {
            // The waits of the callers are over long before this one.
            Refusal::Contended { queue: Queueing::Left(_) | Queueing::Outside, .. } => {
                sleep(LOOK).await
            }
            Refusal::Failed(error) if fenced && !draft.fenced && is_of_a_wish(&error) => {
                fenced = false;
            }
            refusal => return failed(&line, number, refusal, &core),
        }
    }
}

/// The answer to a request; `None` when it is withdrawn.
async fn answer(
    core: &Core,
    store: &Arc<Store>,
    acquisition: &Acquisition,
    withdrawn: &mut oneshot::Receiver<()>,
) -> Option<Result<Answer, Failed>> {
    let mut asked = store.acquire(acquisition.request(), core.shutdown());
    poll_fn(|cx| {
        if Pin::new(&mut *withdrawn).poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        asked.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Waits for the first answer to a request of this line, which may have to subscribe before it is
/// sent. Later ones are sent at once.
async fn first_answer(line: &Line, store: &Store, is_awaited: bool) {
    if is_awaited && !line.was_answered.load(Ordering::Relaxed) {
        let _ = timeout(store.servers().answer_time(), line.answered.notified()).await;
    }
}

/// Both at the same time.
async fn join<T>(asked: impl Future<Output = T>, released: impl Future<Output = ()>) -> T {
    let (mut asked, mut released) = (pin!(asked), pin!(released));
    let (mut answer, mut is_released) = (None, false);
    poll_fn(|cx| {
        if answer.is_none()
            && let Poll::Ready(value) = asked.as_mut().poll(cx)
        {
            answer = Some(value);
        }
        is_released = is_released || released.as_mut().poll(cx).is_ready();
        match (is_released, answer.take()) {
            (true, Some(answer)) => Poll::Ready(answer),
            (_, value) => {
                answer = value;
                Poll::Pending
            }
        }
    })
    .await
}

/// Releases the lock of the turn before, and tells its holder what the store has answered.
async fn release(store: &Store, before: Option<Acquisition>, report: Option<Report>) {
    if let Some(before) = before {
        before.request().note_awaited();
        let released = before.released(store.release(before.request()).await);
        if let Some(report) = report {
            // Fails only when the holder does not wait for it.
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
        // Of the first caller's own wish.
        Refusal::Failed(error) if is_of_a_wish(&error) => (error, false),
        Refusal::Failed(error) => {
            let lasts = !error.is_transient();
            (error, lasts)
        }
    };
    line.with(|state| ((), state.queue.failed(number, &error, all)));
}

/// Whether an error is of a ttl or a fence, which other callers may not want.
fn is_of_a_wish(error: &LockError) -> bool {
    let reason = Unavailability::FencesUsedUp;
    matches!(error, LockError::InvalidTtl { .. })
        || matches!(error, LockError::Unavailable { reason: r, .. } if *r == reason)
}

/// Has what nobody takes up lapse, and notices a holder that has lost the lock, for as long as
/// there are waiters.
async fn watch(line: Arc<Line>) {
    while let Some(pause) = look(&line) {
        let _ = timeout(pause, line.sooner.notified()).await;
    }
}

/// Looks at a line. Returns the pause until the next look; `None` without waiters.
fn look(line: &Arc<Line>) -> Option<Duration> {
    // Tells the line of a loss.
    let lasts = line.holder().and_then(|holder| holder.lasts());
    line.with(|state| {
        let turn = line.turn(state);
        ((), state.queue.lapse(line.unanswered(), turn, Moment::now()))
    });
    let mut state = line.state.lock();
    let now = Moment::now();
    let due = state.queue.lapses(line.unanswered()).map(|due| due.since(now));
    let pause = due.or(lasts).unwrap_or(LOOK).clamp(Duration::from_millis(1), LOOK);
    state.watched = state.queue.has_waiters().then(|| now.after(pause));
    state.watched.map(|_| pause)
}
