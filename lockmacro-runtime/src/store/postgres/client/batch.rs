//! Calls that are sent together: items gather while a call is in flight, and in a pause before the
//! next one. A call takes no more of them than the server answers in good time, the most urgent
//! first, and several calls are in flight where more have gathered.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use scopeguard::{ScopeGuard, guard};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::store::backend::CALLS_PER_TIMEOUT;
use crate::store::remote::error::RemoteError;
use crate::sys::sync::Mutex;
use crate::sys::task::spawn;
use crate::sys::time::Instant;

/// How long renewals gather, and the shortest ttl of which that is a small part.
const GATHER: Duration = Duration::from_millis(250);
const GATHER_FROM: Duration = Duration::from_secs(10);
/// Most calls of a batch in flight.
pub(crate) const LANES: usize = 3;
/// Fewest and most items of a call.
const ITEMS_MIN: usize = 32;
const ITEMS_MAX: usize = 1_024;
/// The items of the first call, whose time is not known yet.
const ITEMS_FIRST: usize = 256;

/// The items that are to be sent, each with a channel for its answer.
pub(crate) struct Batch<T, R> {
    gathered: Mutex<Gathered<T, R>>,
    pause: Duration,
    /// How long a pause and a call take at most.
    pub(crate) longest: Duration,
    /// Most items of a call.
    most: AtomicUsize,
    unwanted: Unwanted,
}

/// What becomes of an item whose caller does not wait for its answer any more.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Unwanted {
    IsSent,
    IsDropped,
}

struct Gathered<T, R> {
    items: Vec<Item<T, R>>,
    /// Since when the task of each lane sends some. Lanes that are not used are never free.
    sending: Vec<Option<Instant>>,
}

struct Item<T, R> {
    /// By when an answer has to be there.
    until: Instant,
    what: T,
    answer: oneshot::Sender<R>,
}

impl<T: Send + 'static, R: Send + 'static> Batch<T, R> {
    /// For calls of a manager with this timeout, each after a pause, with so many of them in
    /// flight.
    pub(crate) fn new(
        pause: Duration,
        timeout: Duration,
        lanes: usize,
        unwanted: Unwanted,
    ) -> Arc<Self> {
        let gathered = Mutex::new(Gathered { items: Vec::new(), sending: vec![None; lanes] });
        // One to connect, and one for the answer.
        let call = 2 * timeout / CALLS_PER_TIMEOUT;
        let most = AtomicUsize::new(ITEMS_FIRST);
        Arc::new(Self { gathered, pause, longest: pause + call, most, unwanted })
    }

    /// Sends an item, together with others that have gathered when the pause is over. `call` gets
    /// the items and the number of their lane, and answers all of them in their order. There is no
    /// answer if the runtime ends.
    pub(crate) fn send<F>(
        self: &Arc<Self>,
        what: T,
        until: Instant,
        call: impl Fn(Vec<T>, usize) -> F + Send + Sync + 'static,
    ) -> oneshot::Receiver<R>
    where
        F: Future<Output = Vec<R>> + Send,
    {
        let (answer, answered) = oneshot::channel();
        let mut gathered = self.gathered.lock();
        gathered.items.push(Item { until, what, answer });
        // A task may be dropped with its runtime, or never be polled again.
        let stuck = 2 * self.longest;
        let is_free = |since: &Option<Instant>| since.is_none_or(|since| since.elapsed() >= stuck);
        let in_flight = gathered.sending.iter().filter(|since| !is_free(since)).count();
        let Some(lane) = gathered.sending.iter().position(is_free) else { return answered };
        // A lane in flight takes them next, unless that are more than it can take.
        if in_flight > 0 && gathered.items.len() < in_flight * self.most.load(Ordering::Relaxed) {
            return answered;
        }
        // Under the mutex: of two items that come at once, one begins the batch.
        gathered.sending[lane] = Some(Instant::now());
        drop(gathered);
        let batch =
            guard(Arc::clone(self), move |batch| batch.gathered.lock().sending[lane] = None);
        spawn(async move {
            while let Some(items) = batch.next(lane).await {
                let (what, answers): (Vec<_>, Vec<_>) =
                    items.into_iter().map(|item| (item.what, item.answer)).unzip();
                for (answer, result) in answers.into_iter().zip(call(what, lane).await) {
                    // Fails only when the caller was dropped.
                    let _ = answer.send(result);
                }
            }
            ScopeGuard::into_inner(batch);
        });
        answered
    }

    /// Takes the most urgent of the items that have gathered; `None` if there are none, and the
    /// next one needs a task.
    async fn next(&self, lane: usize) -> Option<Vec<Item<T, R>>> {
        if !self.pause.is_zero() && lane == 0 {
            sleep(self.pause).await;
        }
        let mut gathered = self.gathered.lock();
        if self.unwanted == Unwanted::IsDropped {
            // After an outage that is most of them.
            gathered.items.retain(|item| !item.answer.is_closed());
        }
        // Under the mutex under which items are added: one that comes after this finds the lane
        // free.
        gathered.sending[lane] = (!gathered.items.is_empty()).then(Instant::now);
        gathered.sending[lane]?;
        let most = self.most.load(Ordering::Relaxed);
        if gathered.items.len() <= most {
            return Some(mem::take(&mut gathered.items));
        }
        gathered.items.select_nth_unstable_by_key(most, |item| item.until);
        let rest = gathered.items.split_off(most);
        Some(mem::replace(&mut gathered.items, rest))
    }

    /// Notes how long a call with so many items took the server, of the time that it may take.
    pub(crate) fn note_time(&self, items: usize, time: Duration, allowed: Duration) {
        let most = self.most.load(Ordering::Relaxed);
        let better = if time > allowed {
            (items.min(most) as f64 * allowed.div_duration_f64(time)) as usize
        } else if items >= most && time < allowed / 2 {
            most * 2
        } else {
            return;
        };
        self.most.store(better.clamp(ITEMS_MIN, ITEMS_MAX), Ordering::Relaxed);
    }
}

/// A key, its token and its ttl in milliseconds.
pub(crate) type Renewal = (String, String, i64);
pub(crate) type Renewed = Result<bool, RemoteError>;

/// The renewals that are sent together.
pub(crate) struct Renewals {
    prompt: Arc<Batch<Renewal, Renewed>>,
    gathering: Arc<Batch<Renewal, Renewed>>,
}

impl Renewals {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            prompt: Batch::new(Duration::ZERO, timeout, LANES, Unwanted::IsDropped),
            gathering: Batch::new(GATHER, timeout, LANES, Unwanted::IsDropped),
        }
    }

    /// Those with which a lease of this ttl is renewed. It may wait for them unless a caller waits.
    pub(crate) fn beside(&self, ttl: Duration, may_wait: bool) -> &Arc<Batch<Renewal, Renewed>> {
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
        let batch = Batch::new(Duration::ZERO, Duration::from_millis(20), 1, Unwanted::IsSent);
        let stopped = runtime();
        let first = {
            let _inside = stopped.enter();
            batch.send(1, Instant::now(), |_, _| pending())
        };
        stopped.block_on(yield_now());
        let answered = runtime().block_on(async {
            for _ in 0..1_000 {
                let sent = batch.send(2, Instant::now(), |items: Vec<i32>, _| async { items });
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

    #[tokio::test(start_paused = true)]
    async fn a_call_takes_the_most_urgent_items_and_no_more_than_the_server_answers_in_time() {
        let batch =
            Batch::new(Duration::from_millis(1), Duration::from_secs(2), 1, Unwanted::IsDropped);
        batch.most.store(100, Ordering::Relaxed);
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let now = Instant::now();
        // The last ones are the most urgent.
        let answers: Vec<_> = (0..250)
            .map(|nth| {
                let sizes = Arc::clone(&sizes);
                let until = now + Duration::from_secs(1_000 - nth);
                batch.send(nth, until, move |items: Vec<u64>, _| {
                    sizes.lock().push((items.len(), items.iter().min().copied()));
                    async { items }
                })
            })
            .collect();
        for (nth, answer) in (0..).zip(answers) {
            assert_eq!(answer.await, Ok(nth), "each has its own answer");
        }
        assert_eq!(*sizes.lock(), [(100, Some(150)), (100, Some(50)), (50, Some(0))]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_nobody_waits_for_any_more_is_not_sent() {
        // A push is sent all the same.
        for (unwanted, sent) in [(Unwanted::IsDropped, 1), (Unwanted::IsSent, 9)] {
            let batch = Batch::new(Duration::from_millis(1), Duration::from_secs(2), 1, unwanted);
            let call = |items: Vec<u64>, _| async move { vec![items.len(); items.len()] };
            let answers: Vec<_> = (0..9).map(|nth| batch.send(nth, Instant::now(), call)).collect();
            let mut answers = answers.into_iter();
            let waits = answers.next().unwrap();
            drop(answers);
            assert_eq!(waits.await, Ok(sent));
        }
    }

    #[test]
    fn a_slow_server_gets_fewer_items_at_once_and_a_fast_one_more() {
        let batch =
            Batch::<(), ()>::new(Duration::ZERO, Duration::from_secs(2), 1, Unwanted::IsSent);
        let most = || batch.most.load(Ordering::Relaxed);
        let allowed = Duration::from_millis(100);
        batch.note_time(ITEMS_FIRST, allowed * 2, allowed);
        assert_eq!(most(), ITEMS_FIRST / 2);
        batch.note_time(10, allowed * 2, allowed);
        assert_eq!(most(), ITEMS_MIN);
        batch.note_time(10, allowed / 10, allowed);
        assert_eq!(most(), ITEMS_MIN, "so few tell nothing of more");
        (0..20).for_each(|_| batch.note_time(most(), allowed / 10, allowed));
        assert_eq!(most(), ITEMS_MAX);
    }
}
