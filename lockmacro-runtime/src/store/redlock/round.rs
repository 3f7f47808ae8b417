//! Requests to several nodes at the same time.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::timeout_at;

use crate::protocol::answer::Asked;
use crate::value::task::spawn;
use crate::value::time::Instant;

/// Requests that are in flight at the same time, each to one node.
pub(crate) struct Round<'a, T> {
    in_flight: FuturesUnordered<Asked<'a, (usize, T)>>,
}

impl<'a, T> Round<'a, T> {
    pub(crate) fn new<F>(questions: impl Iterator<Item = (usize, F)>) -> Self
    where
        F: Future<Output = T> + Send + 'a,
    {
        let boxed = |(nth, question): (usize, F)| -> Asked<'a, (usize, T)> {
            Box::pin(async move { (nth, question.await) })
        };
        Self { in_flight: questions.map(boxed).collect() }
    }

    /// The next answer and the number of its node; `None` when all nodes have answered.
    pub(crate) async fn next(&mut self) -> Option<(usize, T)> {
        self.in_flight.next().await
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
