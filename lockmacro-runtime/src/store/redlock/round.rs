//! Asking all nodes at once.

use std::future::poll_fn;
use std::task::Poll;

use crate::protocol::answer::Asked;

/// Questions that are under way at the same time, each to one node.
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

    /// The next answer and whose it is; `None` when all have answered.
    pub(crate) async fn next(&mut self) -> Option<(usize, T)> {
        poll_fn(|cx| {
            // All of them each time: there are few, and a question leaves when it is first polled.
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
}

impl<T: 'static> Round<'static, T> {
    /// Has the rest go on without anybody waiting for it. Each question has an end of its own.
    pub(crate) fn go_on(mut self) {
        if !self.in_flight.is_empty() {
            tokio::spawn(async move { while self.next().await.is_some() {} });
        }
    }
}
