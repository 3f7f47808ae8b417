//! Calls that go together: while one is in flight, the next ones gather, and for a pause after it.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use scopeguard::{ScopeGuard, guard};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::store::calls::budget::CALLS_PER_TIMEOUT;
use crate::store::calls::error::CallError;
use crate::value::sync::Mutex;
use crate::value::task::spawn;
use crate::value::time::Instant;

/// How long renewals gather.
const GATHER: Duration = Duration::from_millis(250);

/// What waits to be sent, each with where its answer goes.
pub(super) struct Batch<T, R> {
    gathered: Mutex<Gathered<T, R>>,
    pause: Duration,
    /// How long a pause and a call take at most.
    pub(super) longest: Duration,
}

struct Gathered<T, R> {
    items: Vec<(T, oneshot::Sender<R>)>,
    /// Since when a task sends some.
    sending: Option<Instant>,
}

impl<T: Send + 'static, R: Send + 'static> Batch<T, R> {
    /// For calls of a manager with this timeout, each after a pause.
    pub(super) fn new(pause: Duration, timeout: Duration) -> Arc<Self> {
        let gathered = Mutex::new(Gathered { items: Vec::new(), sending: None });
        // One to connect, and one for the answer.
        let call = 2 * timeout / CALLS_PER_TIMEOUT;
        Arc::new(Self { gathered, pause, longest: pause + call })
    }

    /// Sends an item, together with those that have gathered when the pause is over.
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
        if gathered.sending.is_some_and(|since| since.elapsed() < 2 * self.longest) {
            return answered;
        }
        gathered.sending = Some(Instant::now());
        drop(gathered);
        // Its task may be dropped with its runtime, or never be polled again.
        let batch = guard(Arc::clone(self), |batch| batch.gathered.lock().sending = None);
        spawn(async move {
            while let Some(gathered) = batch.next().await {
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
    async fn next(&self) -> Option<Vec<(T, oneshot::Sender<R>)>> {
        if !self.pause.is_zero() {
            sleep(self.pause).await;
        }
        let mut gathered = self.gathered.lock();
        gathered.sending = (!gathered.items.is_empty()).then(Instant::now);
        gathered.sending.map(|_| mem::take(&mut gathered.items))
    }
}

/// A key, its token and its ttl in milliseconds.
pub(super) type Renewal = (String, String, i64);
pub(super) type Renewed = Result<bool, CallError>;

/// The renewals that are sent together.
pub(super) struct Renewals {
    pub(super) prompt: Arc<Batch<Renewal, Renewed>>,
    pub(super) gathering: Arc<Batch<Renewal, Renewed>>,
}

impl Renewals {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { prompt: Batch::new(Duration::ZERO, timeout), gathering: Batch::new(GATHER, timeout) }
    }
}
