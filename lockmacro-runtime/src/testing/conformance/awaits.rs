//! A call that is stopped at one of its awaits.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Most awaits at which a call is stopped.
pub(super) const AWAITS_MAX: usize = 16;

/// Polls the future until it waits once more after so many waits. Returns its output if it has ended
/// before.
pub(super) async fn until_await<F: Future>(
    mut future: Pin<&mut F>,
    waits: usize,
) -> Option<F::Output> {
    let mut waited = 0;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if waited == waits => Poll::Ready(None),
        Poll::Pending => {
            waited += 1;
            Poll::Pending
        }
    })
    .await
}
