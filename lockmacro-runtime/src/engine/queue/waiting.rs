//! A caller that waits in the queue of its key, or for what becomes of it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::time::timeout;

use crate::engine::cleanup::acquisition::Refusal;
use crate::engine::queue::shared_queue::SharedQueue;
use crate::engine::queue::shared_queue::in_queue::{Arrived, InQueue, TakenUp};
use crate::engine::queue::timer::Timer;
use crate::engine::telemetry::WaitingGauge;
use crate::protocol::request::Request;
use crate::value::error::LockError;
use crate::value::time::Moment;

/// A longer wait is treated as one without an end.
const LONGEST_TIMER: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// How long a caller without a wait stays in the queue of a lost server, whose waiters go on
/// asking.
const LOST: Duration = Duration::from_millis(40);

/// Numbers of waiting callers.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Waits for a release of this process that was in flight at `since`, or was sent later. Returns
/// whether there was one that has ended.
pub(crate) async fn released(queue: &SharedQueue, since: Moment) -> bool {
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let longest = queue.core.answer_time() * 2;
    let ended = timeout(longest, poll_fn(|cx| queue.poll_released(number, since, cx))).await;
    queue.forget(number);
    ended.unwrap_or(false)
}

/// A caller that waits. Dropping it leaves the queue.
pub(crate) struct Waiting {
    queue: Arc<SharedQueue>,
    /// `None` for a caller without a wait, which arrives again after each event.
    caller: Option<InQueue>,
    request: WaitingGauge<Arc<Request>>,
    number: u64,
    /// When it came to the queue.
    since: Moment,
    /// Boxed, to keep the waiter small.
    timer: Option<Box<Timer>>,
    /// The wait is over, and the waiter has some more time for a first answer only.
    is_last: bool,
}

/// How a wait ends.
pub(crate) enum Waited {
    Lock(TakenUp),
    Refused(Refusal),
    /// The caller has arrived again.
    Arrived(Arrived),
}

impl Waiting {
    /// `caller` is `None` for a caller that is [undecided](Arrived::Undecided).
    pub(crate) fn new(
        queue: Arc<SharedQueue>,
        caller: Option<InQueue>,
        request: &Arc<Request>,
    ) -> Self {
        let (timer, is_last, since) = (None, false, Moment::now());
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let request = WaitingGauge::new(Arc::clone(request));
        Self { queue, caller, request, number, since, timer, is_last }
    }

    pub(crate) fn queue(&self) -> &Arc<SharedQueue> {
        &self.queue
    }

    pub(crate) fn request(&self) -> &Arc<Request> {
        &self.request
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Waited> {
        loop {
            if let Poll::Ready(waited) = self.look(cx.waker()) {
                return Poll::Ready(waited);
            }
            if self.is_last {
                self.queue.notify(self.number, cx.waker());
                if let Some(refusal) = self.over(false) {
                    return Poll::Ready(Waited::Refused(refusal));
                }
            }
            let Some(left) = self.left() else { return Poll::Pending };
            let timer = self.timer.get_or_insert_with(|| Box::new(Timer::new(left)));
            ready!(timer.poll(cx));
            self.timer = None;
            let is_last = self.is_last || self.caller.is_none();
            if let Some(refusal) = self.over(is_last) {
                return Poll::Ready(Waited::Refused(refusal));
            }
            self.is_last = true;
        }
    }

    fn look(&mut self, waker: &Waker) -> Poll<Waited> {
        let is_closed = |this: &Self| this.queue.core.shutdown.is_closed();
        let shut_down = || Poll::Ready(Waited::Refused(Refusal::Failed(LockError::ShutDown)));
        if is_closed(self) {
            return shut_down();
        }
        let found = match &self.caller {
            Some(caller) => match caller.poll(waker) {
                Some(Ok(None)) => None,
                Some(Ok(Some(taken_up))) => Some(Waited::Lock(taken_up)),
                Some(Err(error)) => Some(Waited::Refused(Refusal::Failed(error))),
                None => Some(match self.request.with_new_token() {
                    Ok(request) => {
                        self.request = WaitingGauge::new(Arc::new(request));
                        Waited::Arrived(self.queue.arrive(&self.request, true, None))
                    }
                    Err(error) => Waited::Refused(Refusal::Failed(error)),
                }),
            },
            None => match self.queue.busy_since(self.since) {
                Some(refusal) => Some(Waited::Refused(refusal)),
                None => {
                    let undecided = Some((self.number, waker));
                    match self.queue.arrive(&self.request, true, undecided) {
                        Arrived::Undecided => None,
                        arrived => Some(Waited::Arrived(arrived)),
                    }
                }
            },
        };
        match found {
            Some(found) => {
                self.caller = None;
                Poll::Ready(found)
            }
            // The manager may have been shut down before the waker was registered.
            None if is_closed(self) => shut_down(),
            None => Poll::Pending,
        }
    }

    /// How long the caller still waits; `None` for ever.
    fn left(&self) -> Option<Duration> {
        let core = &self.queue.core;
        let until = match (self.request.until, self.is_last) {
            (Some(until), false) => until,
            // The waiter has this much longer for the answer to a request in flight.
            (Some(until), true) => until.after(core.answer_time()),
            (None, _) if self.fails_fast() => self.since.after(LOST),
            // One answer to another caller's request, and one to a request of the queue after it.
            (None, _) => self.since.after(core.answer_time() * 2),
        };
        Some(until.since(Moment::now())).filter(|left| *left < LONGEST_TIMER)
    }

    /// Whether the waiters before this caller are known to have no answer.
    fn fails_fast(&self) -> bool {
        let core = &self.queue.core;
        !core.defaults.asks_lost && core.store().servers().is_lost(&self.request)
    }

    /// The refusal of a caller whose wait is over; `None` until there was a first answer, unless
    /// this is the `last` check.
    fn over(&self, last: bool) -> Option<Refusal> {
        self.queue.over(self.caller.as_ref().map(|caller| caller.ticket), last, self.since)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.is_last || self.caller.is_none() {
            self.queue.forget(self.number);
        }
        if let Some(caller) = self.caller.take() {
            caller.leave(None);
        }
    }
}
