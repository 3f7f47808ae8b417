//! Calls that go together: while one is in flight, the next ones gather.

use std::mem;
use std::sync::Arc;

use scopeguard::{ScopeGuard, guard};
use tokio::sync::oneshot;

use crate::value::sync::Mutex;
use crate::value::task::spawn;

/// What waits to be sent, each with where its answer goes.
pub(super) struct Batch<T, R>(Mutex<Gathered<T, R>>);

struct Gathered<T, R> {
    items: Vec<(T, oneshot::Sender<R>)>,
    /// Whether a task sends them.
    is_sending: bool,
}

impl<T: Send + 'static, R: Send + 'static> Batch<T, R> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Gathered { items: Vec::new(), is_sending: false })))
    }

    /// Sends an item, together with those that have gathered when the call before is answered.
    /// `call` answers all of them, in their order. There is no answer if the runtime ends.
    pub(super) fn send<F>(
        self: &Arc<Self>,
        item: T,
        call: impl Fn(Vec<T>) -> F + Send + Sync + 'static,
    ) -> oneshot::Receiver<R>
    where
        F: Future<Output = Vec<R>> + Send,
    {
        let (answer, answered) = oneshot::channel();
        let mut gathered = self.0.lock();
        gathered.items.push((item, answer));
        if mem::replace(&mut gathered.is_sending, true) {
            return answered;
        }
        drop(gathered);
        // The runtime may end with the task.
        let batch = guard(Arc::clone(self), |batch| batch.0.lock().is_sending = false);
        spawn(async move {
            while let Some(gathered) = batch.next() {
                let (items, answers): (Vec<_>, Vec<_>) = gathered.into_iter().unzip();
                for (answer, result) in answers.into_iter().zip(call(items).await) {
                    // Fails only when the caller was dropped.
                    let _ = answer.send(result);
                }
            }
            ScopeGuard::into_inner(batch);
        });
        answered
    }

    /// What has gathered; `None` when there is nothing, and the next item needs a new task.
    fn next(&self) -> Option<Vec<(T, oneshot::Sender<R>)>> {
        let mut gathered = self.0.lock();
        gathered.is_sending = !gathered.items.is_empty();
        gathered.is_sending.then(|| mem::take(&mut gathered.items))
    }
}
