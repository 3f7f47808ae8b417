//! Asking all nodes at once.

use std::future::poll_fn;
use std::task::Poll;

use crate::protocol::answer::Asked;

/// Questions that are under way at the same time, each to one node.
pub(crate) struct Round<'a, T> {
    under_way: Vec<(usize, Asked<'a, T>)>,
}

impl<'a, T> Round<'a, T> {
    pub(crate) fn new<F>(questions: impl Iterator<Item = (usize, F)>) -> Self
    where
        F: Future<Output = T> + Send + 'a,
    {
        let boxed = |(nth, question)| (nth, Box::pin(question) as Asked<'a, T>);
        Self { under_way: questions.map(boxed).collect() }
    }

    /// The next answer and whose it is; `None` when all have answered.
    pub(crate) async fn next(&mut self) -> Option<(usize, T)> {
        poll_fn(|cx| {
            // All of them each time: there are few, and a question leaves when it is first polled.
            for at in 0..self.under_way.len() {
                let (nth, question) = &mut self.under_way[at];
                if let Poll::Ready(answer) = question.as_mut().poll(cx) {
                    let nth = *nth;
                    drop(self.under_way.swap_remove(at));
                    return Poll::Ready(Some((nth, answer)));
                }
            }
            if self.under_way.is_empty() { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }
}

impl<T: 'static> Round<'static, T> {
    /// Has the rest go on without anybody waiting for it. Each question has an end of its own.
    pub(crate) fn go_on(mut self) {
        if !self.under_way.is_empty() {
            tokio::spawn(async move { while self.next().await.is_some() {} });
        }
    }
}
