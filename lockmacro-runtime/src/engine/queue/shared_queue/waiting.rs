//! A caller that waits in the queue of its key, or for what becomes of it.

use std::convert::identity;
use std::future::pending;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{sleep, timeout};

use super::SharedQueue;
use super::in_queue::{Arrived, InQueue, Waited};
use crate::engine::queue::key_queue::Ticket;
use crate::engine::telemetry::WaitingGauge;
use crate::engine::token::acquisition::Refusal;
use crate::protocol::ask::Ask;
use crate::protocol::request::Request;
use crate::sys::sync::until;
use crate::sys::time::Moment;
use crate::value::error::LockError;

/// A longer wait is treated as one without an end.
const LONGEST_TIMER: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// How long a caller without a wait stays in the queue of a server that is down, whose waiters go
/// on asking.
const WHILE_DOWN: Duration = Duration::from_millis(40);

/// A waiter. Dropping it leaves the queue.
pub(crate) struct Waiting {
    /// Present until the wait ends.
    caller: Option<InQueue>,
    _counted: WaitingGauge<Arc<Ask>>,
    /// Ready with the refusal when the wait is over.
    over: BoxFuture<'static, Refusal>,
}

impl Waiting {
    pub(crate) fn new(caller: InQueue, ask: &Arc<Ask>) -> Self {
        let queue = Arc::clone(&caller.queue);
        let ticket = caller.ticket;
        let since = Moment::now();
        let left = ask.until.map(|until| until.since(since));
        let over: BoxFuture<'_, _> = match left.filter(|left| *left < LONGEST_TIMER) {
            Some(left) => Box::pin(over(queue, ticket, since, left)),
            None => Box::pin(pending()),
        };
        Self { caller: Some(caller), _counted: WaitingGauge::new(Arc::clone(ask)), over }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Waited> {
        let Some(caller) = &self.caller else { return Poll::Pending };
        let Poll::Ready(waited) = caller.poll(cx.waker()) else {
            // The manager may have been shut down before the caller was in the queue.
            return if caller.queue.core.shutdown.is_closed() {
                Poll::Ready(Waited::Refused(Refusal::Failed(LockError::SHUT_DOWN)))
            } else {
                self.over.as_mut().poll(cx).map(Waited::Refused)
            };
        };
        self.caller = None;
        Poll::Ready(waited)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(caller) = self.caller.take() {
            caller.leave(None);
        }
    }
}

/// The refusal of a waiter that came at `since`, after `left` and the time for the answer to a
/// request in flight.
async fn over(queue: Arc<SharedQueue>, ticket: Ticket, since: Moment, left: Duration) -> Refusal {
    sleep(left).await;
    // An answer that is in flight says whether the lock was busy or the server down, which the
    // caller must be able to tell apart.
    let known = until(&queue.changed, || queue.over(Some(ticket), since).ok());
    let known = Box::pin(timeout(queue.core.answer_time(), known)).await;
    known.unwrap_or_else(|_| queue.over(Some(ticket), since).unwrap_or_else(identity))
}

/// The arrival of a caller that does not wait, once the queue knows whether it is refused.
pub(crate) async fn decided(queue: &Arc<SharedQueue>, request: &Request) -> Arrived {
    let since = Moment::now();
    let _waiting = WaitingGauge::new(&*request.ask);
    let refused = |refusal| Some(Arrived::Refused(refusal));
    let arrives = || match queue.busy_since(since) {
        _ if queue.core.shutdown.is_closed() => refused(Refusal::Failed(LockError::SHUT_DOWN)),
        Some(refusal) => refused(refusal),
        None => Some(queue.arrive(request, true)).filter(|it| !matches!(it, Arrived::Undecided)),
    };
    // One answer to another caller's request, and one to a request of the queue after it.
    let longest =
        if !queue.core.defaults.asks_down && queue.core.store.backend.health(request).is_down {
            WHILE_DOWN
        } else {
            queue.core.answer_time() * 2
        };
    let arrived = timeout(longest, until(&queue.changed, arrives)).await;
    arrived.unwrap_or_else(|_| Arrived::Refused(queue.over(None, since).unwrap_or_else(identity)))
}

/// Waits for a release of this process that was in flight at `since`, or was sent later. Returns
/// whether there was one that has ended.
pub(crate) async fn released(queue: &SharedQueue, since: Moment) -> bool {
    let ended = until(&queue.changed, || queue.released_since(since));
    timeout(queue.core.answer_time() * 2, ended).await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::Waker;
    use std::thread;

    use super::*;
    use crate::engine::core::Core;
    use crate::store::handle::Store;
    use crate::store::memory::Memory;
    use crate::value::defaults::Defaults;

    /// A caller that would wait for an hour.
    fn request() -> Request {
        let ttl = Duration::from_secs(60);
        let ask = Ask::new("order:1".into(), ttl, Moment::now());
        let until = Some(ask.asked.after(Duration::from_secs(60 * 60)));
        Request::of(Ask { until, ..ask })
    }

    fn queue() -> Arc<SharedQueue> {
        let store = Store::of(Memory::new());
        let defaults = Defaults::default();
        let core = Core::over(store, None, defaults, Default::default());
        SharedQueue::new("order:1".into(), core)
    }

    /// The first watch of a manager makes a thread and a runtime.
    #[test]
    fn a_slow_start_of_the_thread_keeps_no_caller_from_the_queue() {
        let queue = queue();
        let delayed = queue.core.background.delay_start();
        let (sender, watched) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!(matches!(queue.arrive(&request(), false), Arrived::Asks(..)));
                assert!(matches!(queue.arrive(&request(), false), Arrived::Waits(_)));
            });
            scope.spawn(|| {
                while queue.state.lock().watched.is_none() {
                    thread::yield_now();
                }
                sender.send(()).unwrap();
            });
            let watched = watched.recv_timeout(Duration::from_secs(10));
            // Before the threads are waited for.
            drop(delayed);
            assert!(watched.is_ok(), "the mutex of the queue is held while the thread starts");
        });
    }

    #[tokio::test]
    async fn a_caller_that_enters_the_queue_after_it_was_closed_does_not_wait() {
        let queue = queue();
        let core = Arc::clone(&queue.core);
        core.shutdown.close();
        queue.close();
        let first = request();
        let second = request();
        assert!(matches!(queue.arrive(&first, false), Arrived::Asks(..)));
        let Arrived::Waits(caller) = queue.arrive(&second, false) else { panic!("it waits") };
        let mut waiting = Waiting::new(caller, &second.ask);
        let waited = waiting.poll(&mut Context::from_waker(Waker::noop()));
        let is_refused =
            matches!(waited, Poll::Ready(Waited::Refused(Refusal::Failed(LockError::SHUT_DOWN))));
        assert!(is_refused);
        drop(waiting);
        assert_eq!(queue.state.lock().queue.count(), 1, "only the one that asks is left");
    }
}
