//! Calls that go together: while one is in flight, the next ones gather.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use scopeguard::{ScopeGuard, guard};
use tokio::sync::oneshot;

use crate::value::sync::Mutex;
use crate::value::task::spawn;
use crate::value::time::Instant;

/// What waits to be sent, each with where its answer goes.
pub(super) struct Batch<T, R> {
    gathered: Mutex<Gathered<T, R>>,
    /// More than a call takes. After that its task is on a runtime that does not go on.
    longest: Duration,
}

struct Gathered<T, R> {
    items: Vec<(T, oneshot::Sender<R>)>,
    /// Since when a task sends some.
    sending: Option<Instant>,
}

impl<T: Send + 'static, R: Send + 'static> Batch<T, R> {
    /// Calls that take no longer than this.
    pub(super) fn new(longest: Duration) -> Arc<Self> {
        let gathered = Mutex::new(Gathered { items: Vec::new(), sending: None });
        Arc::new(Self { gathered, longest: 2 * longest })
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
        let mut gathered = self.gathered.lock();
        gathered.items.push((item, answer));
        if gathered.sending.is_some_and(|since| since.elapsed() < self.longest) {
            return answered;
        }
        gathered.sending = Some(Instant::now());
        drop(gathered);
        // The runtime may end with the task.
        let batch = guard(Arc::clone(self), |batch| batch.gathered.lock().sending = None);
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
        let mut gathered = self.gathered.lock();
        gathered.sending = (!gathered.items.is_empty()).then(Instant::now);
        gathered.sending.map(|_| mem::take(&mut gathered.items))
    }
}
