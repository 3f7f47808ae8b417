//! Requests to several nodes at the same time.

use std::future::poll_fn;
use std::task::Poll;

use tokio::time::timeout_at;

use crate::protocol::answer::Asked;
use crate::value::task::spawn;
use crate::value::time::Instant;

/// Requests that are in flight at the same time, each to one node.
pub(crate) struct Round<'a, T> {
    in_flight: Vec<(usize, Asked<'a, T>)>,
}

impl<'a, T> Round<'a, T> {
    pub(crate) fn new<F>(questions: impl Iterator<Item = (usize, F)>) -> Self
    where
        F: Future<Output = T> + Send + 'a,
    {
        let boxed = |(nth, question)| (nth, Box::pin(question) as Asked<'a, T>);
        Self { in_flight: questions.map(boxed).collect() }
    }

    /// The next answer and the number of its node; `None` when all nodes have answered.
    pub(crate) async fn next(&mut self) -> Option<(usize, T)> {
        poll_fn(|cx| {
            // Polls all each time: there are few, and a request is sent when it is first polled.
            for at in 0..self.in_flight.len() {
                let (nth, question) = &mut self.in_flight[at];
                if let Poll::Ready(answer) = question.as_mut().poll(cx) {
                    let nth = *nth;
                    drop(self.in_flight.swap_remove(at));
                    return Poll::Ready(Some((nth, answer)));
                }
            }
            if self.in_flight.is_empty() { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }

    /// The same, until a deadline; `None` after it, too.
    pub(crate) async fn next_until(&mut self, until: Instant) -> Option<(usize, T)> {
        timeout_at(until, self.next()).await.ok().flatten()
    }
}

impl<T: 'static> Round<'static, T> {
    /// Lets the rest go on in a task of its own. Each request has a timeout.
    pub(crate) fn go_on(mut self) {
        if !self.in_flight.is_empty() {
            spawn(async move { while self.next().await.is_some() {} });
        }
    }
}
