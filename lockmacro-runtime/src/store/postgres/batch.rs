//! Calls that are sent together: items gather while a call is in flight, and in a pause before the
//! next one.

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

/// How long renewals gather, and the shortest ttl of which that is a small part.
const GATHER: Duration = Duration::from_millis(250);
const GATHER_FROM: Duration = Duration::from_secs(10);

/// The items that are to be sent, each with a channel for its answer.
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

    /// Takes the items that have gathered; `None` if there are none, and the next one needs a task.
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
    prompt: Arc<Batch<Renewal, Renewed>>,
    gathering: Arc<Batch<Renewal, Renewed>>,
}

impl Renewals {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { prompt: Batch::new(Duration::ZERO, timeout), gathering: Batch::new(GATHER, timeout) }
    }

    /// Those with which a lease of this ttl is renewed. It may wait for them unless a caller waits.
    pub(super) fn beside(&self, ttl: Duration, may_wait: bool) -> &Arc<Batch<Renewal, Renewed>> {
        if may_wait && ttl >= GATHER_FROM { &self.gathering } else { &self.prompt }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::runtime::{Builder, Runtime};
    use tokio::task::yield_now;
    use tokio::time::timeout;

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn items_are_sent_although_the_runtime_that_sends_does_not_go_on() {
        let batch = Batch::new(Duration::ZERO, Duration::from_millis(20));
        let stopped = runtime();
        let first = {
            let _inside = stopped.enter();
            batch.send(1, |_| pending())
        };
        stopped.block_on(yield_now());
        let answered = runtime().block_on(async {
            for _ in 0..1_000 {
                let sent = batch.send(2, |items: Vec<i32>| async { items });
                if let Ok(answer) = timeout(Duration::from_millis(5), sent).await {
                    return answer;
                }
            }
            panic!("nothing is sent")
        });
        assert_eq!(answered, Ok(2));
        drop(stopped);
        assert!(first.blocking_recv().is_err(), "it was sent by the other runtime");
    }
}
