//! Dropping a future at each of its await points.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The result of a future that was given a number of polls.
#[derive(Debug, PartialEq, Eq)]
pub enum Polled<T> {
    /// It was dropped while still pending.
    Dropped,
    /// It completed before that.
    Completed(T),
}

/// Polls `future` when it asks to be polled, at most `polls` times, then drops it.
pub async fn drop_after_polls<F: Future>(future: F, polls: usize) -> Polled<F::Output> {
    Counted { future: Box::pin(future), left: polls }.await
}

/// Spawns `future`, and returns when its task has polled it once.
pub async fn spawn_polled<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let (polled, was_polled) = oneshot::channel();
    let mut polled = Some(polled);
    let task = tokio::spawn(async move {
        let mut future = pin!(future);
        poll_fn(|context| {
            let poll = future.as_mut().poll(context);
            // The caller may be gone.
            let _ = polled.take().map(|polled| polled.send(()));
            poll
        })
        .await
    });
    was_polled.await.expect("the first poll does not panic");
    task
}

struct Counted<F> {
    future: Pin<Box<F>>,
    left: usize,
}

impl<F: Future> Future for Counted<F> {
    type Output = Polled<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(Polled::Dropped);
        }
        self.left -= 1;
        match self.future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Polled::Completed(value)),
            // The last poll allowed: the future goes now, and not when it would be woken.
            Poll::Pending if self.left == 0 => Poll::Ready(Polled::Dropped),
            Poll::Pending => Poll::Pending,
        }
    }
}
