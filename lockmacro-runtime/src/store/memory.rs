//! The store in memory, for `memory://`: like a server, but of one process.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::time::timeout_at;

#[cfg(feature = "defer")]
use crate::jobs::memory::MemoryJobs;
use crate::protocol::answer::{Answer, Failed, Grant, Queueing, Released};
use crate::protocol::request::Request;
use crate::protocol::shutdown::Shutdown;
use crate::store::hand_off::HandOff;
use crate::store::memory_table::{Holder, Table};
use crate::store::servers::Servers;
use crate::store::tick::tick;
use crate::store::waiters::{Signal, Waiters};
use crate::value::applied::Applied;
use crate::value::key::LockKey;
use crate::value::random;
use crate::value::sync::{Mutex, MutexGuard};
use crate::value::time::{Instant, Moment};

/// The store of every `memory://` of the process, as one server is behind every equal URL.
static SHARED: LazyLock<Memory> = LazyLock::new(Memory::new);

#[derive(Debug, Clone)]
pub(crate) struct Memory {
    table: Arc<Mutex<Table>>,
    waiters: Arc<Waiters>,
    /// Whether every lock is granted.
    disabled: bool,
    #[cfg(feature = "defer")]
    pub(crate) jobs: MemoryJobs,
}

impl Memory {
    /// A store of its own.
    pub(crate) fn new() -> Self {
        Self {
            table: Arc::new(Mutex::new(Table::new())),
            waiters: Arc::default(),
            disabled: false,
            #[cfg(feature = "defer")]
            jobs: MemoryJobs::new(),
        }
    }

    /// A store that excludes nobody.
    pub(crate) fn disabled() -> Self {
        Self { disabled: true, ..Self::new() }
    }

    pub(crate) fn is_disabled(&self) -> bool {
        self.disabled
    }

    /// The store of the process.
    pub(crate) fn shared() -> Self {
        SHARED.clone()
    }

    pub(crate) fn acquire(&self, request: &Request) -> Result<Answer, Failed> {
        self.ask(request, None)
    }

    pub(crate) async fn wait(
        &self,
        request: &Request,
        wait: Duration,
        shutdown: &Shutdown,
    ) -> Result<Answer, Failed> {
        let waiter = self.waiters.join(0, 0);
        let until = Instant::now().checked_add(wait);
        loop {
            // A shutdown alarms the waiter.
            shutdown.check()?;
            let over = until.is_some_and(|until| until <= Instant::now());
            let answer = self.ask(request, Some(waiter.number()))?;
            // No request is in flight: if the caller drops this future, one release is enough.
            request.set_applied(Applied::Yes);
            let Answer::Contended { holder, queue: Queueing::Left(rank), .. } = &answer else {
                return Ok(answer);
            };
            if over {
                return Ok(answer);
            }
            request.witness().contended(holder, *rank);
            let pause = Instant::now() + tick(*rank, holder.left, true, random::fraction());
            let pause = until.map_or(pause, |until| until.min(pause));
            // Keeps the future small while it waits.
            drop(answer);
            let signal = timeout_at(pause, waiter.signal()).await;
            shutdown.check()?;
            if let Ok(Signal::Granted(hand_off)) = signal {
                let HandOff { received: sent, ttl, fences, .. } = *hand_off;
                if sent.elapsed() < ttl / 2 {
                    let (at, earlier, fences) = (sent, Applied::No, fences.into_iter().collect());
                    return Ok(Answer::Granted(Grant { sent, at, ttl, earlier, fences }));
                }
                // Too little time may be left: the next request confirms the lock, or queues again.
            }
        }
    }

    /// Requests the lock once, and enqueues the waiter of this number if it is contended.
    fn ask(&self, request: &Request, waiter: Option<u64>) -> Result<Answer, Failed> {
        let (now, earlier) = (Moment::now(), Applied::No);
        let mut table = self.table();
        let fenced = if request.is_fenced() { request.keys() } else { &[] };
        // Checked before the table is changed.
        table
            .has_fences(fenced.len())
            .map_err(|error| Failed { error, applied: Applied::Unknown })?;
        let locked = if self.disabled { &[] } else { request.keys() };
        for (nth, key) in locked.iter().map(LockKey::as_str).enumerate() {
            let mode = locked[nth].mode();
            let is_held = |table: &mut Table| {
                table.holder(key, &request.token).is_some_and(|holder| holder.expires > now)
            };
            if is_held(&mut table) {
                continue;
            }
            if table.admits(key, mode, now) {
                if let Some(number) = waiter {
                    table.enqueue(request, number);
                }
                // Waiters come first.
                table.hand_off(key, now, &self.waiters);
                let is_free = !table.queues.contains_key(key) && table.admits(key, mode, now);
                if is_free || is_held(&mut table) {
                    continue;
                }
            }
            let holder = table.other_holder(key, mode, now);
            let queue = match waiter {
                Some(number) => table.enqueue(request, number),
                None => Queueing::Outside,
            };
            return Ok(Answer::Contended { nth, holder, queue, earlier });
        }
        table.sweep(now);
        for (key, mode) in locked.iter().map(|key| (key.as_str(), key.mode())) {
            if waiter.is_some() {
                table.dequeue(key, &request.token);
            }
            let (expires, is_exclusive) = (now.after(request.ttl), mode.is_exclusive());
            table.grant(key, Holder { token: request.token.clone(), expires, is_exclusive });
        }
        let fences = fenced.iter().filter_map(|_| table.fences()).collect();
        Ok(Answer::Granted(Grant { sent: now, at: now, ttl: request.ttl, earlier, fences }))
    }

    /// Forgets every lock, waiter and deferred call. Fences still grow.
    #[cfg(feature = "test-util")]
    pub(crate) fn reset(&self) {
        self.table().reset();
        #[cfg(feature = "defer")]
        self.jobs.reset();
        self.alarm();
    }

    /// Makes every waiter repeat its request.
    pub(crate) fn alarm(&self) {
        self.waiters.alarm_where(|_| true);
    }

    pub(crate) fn renew(&self, request: &Request, ttl: Duration) -> bool {
        if self.disabled {
            return true;
        }
        let now = Moment::now();
        let mut table = self.table();
        let mut all = true;
        for key in request.keys() {
            match table.holder(key.as_str(), &request.token) {
                // As on a server, a renewal never shortens the lease.
                Some(holder) if holder.expires > now => {
                    holder.expires = holder.expires.max(now.after(ttl));
                }
                _ => all = false,
            }
        }
        all
    }

    pub(crate) fn release(&self, request: &Request) -> Released {
        if self.disabled {
            return Released::Held;
        }
        // In this order: time that passes between the two readings keeps the key longer.
        let (keep, mut table, now) = (request.keep(), self.table(), Moment::now());
        let mut all = true;
        for key in request.keys().iter().map(LockKey::as_str) {
            let Some(holder) = table.holder(key, &request.token) else {
                // Without the lock, the token may be in the queue.
                if request.waits() {
                    table.dequeue(key, &request.token);
                    // Those behind it may share the lock.
                    table.hand_off(key, now, &self.waiters);
                }
                all = false;
                continue;
            };
            let was_held = holder.expires > now;
            let keeps = was_held && !keep.is_zero();
            holder.expires = if keeps { now.after(keep) } else { now };
            holder.token = holder.token.spent();
            table.hand_off(key, now, &self.waiters);
            if keeps && let Some(first) = table.queues.get(key).and_then(VecDeque::front) {
                // The first waiter repeats its request, and learns how long the key is kept.
                self.waiters.alarm(first.number);
            }
            // A key without holders is forgotten.
            table.holders(key, now);
            all &= was_held;
        }
        if all { Released::Held } else { Released::NotHeld }
    }

    #[cfg(test)]
    pub(crate) fn holds_nothing(&self) -> bool {
        self.table().held.is_empty()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No code under this mutex can panic and leave the table half changed.
        self.table.lock()
    }
}

impl Servers for Memory {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory_table::SWEEP_FROM;
    use crate::value::error::{LockError, Unavailability};
    use crate::value::token::Token;

    fn request(key: &str, ttl: Duration) -> Request {
        Request::new(key.into(), Token::new("test", "", "").unwrap(), ttl)
    }

    #[test]
    fn expired_keys_do_not_pile_up() {
        let memory = Memory::new();
        for nth in 0..10_000 {
            memory.ask(&request(&nth.to_string(), Duration::ZERO), None).unwrap();
        }
        assert!(memory.table().held.len() <= SWEEP_FROM);
    }

    #[test]
    fn a_release_that_waits_for_the_store_keeps_the_key_as_long_as_any() {
        let (memory, kept) = (Memory::new(), Duration::from_secs(20));
        let request = request("order:42", 3 * kept).with(Vec::new(), None, kept);
        let sent = Moment::now();
        request.granted(sent);
        memory.ask(&request, None).unwrap();
        let (table, waits) = (memory.table(), Duration::from_millis(50));
        std::thread::scope(|scope| {
            let releasing = scope.spawn(|| memory.release(&request));
            std::thread::sleep(waits);
            drop(table);
            assert_eq!(releasing.join().unwrap(), Released::Held);
        });
        let table = memory.table();
        assert!(table.held["order:42"][0].expires >= sent.after(kept));
    }

    #[test]
    fn a_waiter_that_asks_again_keeps_its_place() {
        let (memory, second) = (Memory::new(), Duration::from_secs(1));
        memory.ask(&request("order:42", second), None).unwrap();
        let (first, rival) = (request("order:42", second), request("order:42", second));
        for (request, number) in [(&first, 1), (&rival, 2), (&first, 3)] {
            memory.ask(request, Some(number)).unwrap();
        }
        let table = memory.table();
        let queue: Vec<_> = table.queues["order:42"].iter().map(|waiting| waiting.number).collect();
        assert_eq!(queue, [3, 2]);
    }

    #[tokio::test]
    async fn fences_that_are_used_up_are_an_error_and_never_repeated() {
        let (memory, shutdown) = (Memory::new(), Shutdown::default());
        memory.table().last_fence = (1 << 53) - 1;
        let used_up = |answer: Result<Answer, Failed>| {
            let reason = Unavailability::FencesUsedUp;
            let Err(Failed { error, .. }) = answer else { panic!("{answer:?}") };
            assert!(matches!(error, LockError::Unavailable { reason: r, .. } if r == reason));
        };
        let fenced = |key| {
            let mut request = request(key, Duration::from_secs(60));
            (request.fenced, request.until) = (true, Some(Moment::now().after(Duration::MAX)));
            request
        };
        let last = fenced("order:42");
        let Ok(Answer::Granted(Grant { fences, .. })) = memory.ask(&last, None) else { panic!() };
        assert_eq!(
            fences.iter().map(|block| u64::from(block.last())).collect::<Vec<_>>(),
            [1 << 53]
        );
        used_up(memory.ask(&fenced("order:43"), None));
        memory.release(&last);

        // A waiter that gets no fence gets the error, and the waiters after it are served.
        memory.table().last_fence -= 1;
        let plain = request("order:42", Duration::from_secs(60));
        assert!(matches!(memory.ask(&plain, None), Ok(Answer::Granted(_))));
        let (one, other) = (fenced("order:42"), fenced("order:42"));
        let mut one = std::pin::pin!(memory.wait(&one, Duration::MAX, &shutdown));
        let mut other = std::pin::pin!(memory.wait(&other, Duration::MAX, &shutdown));
        assert!(futures::poll!(&mut one).is_pending() && futures::poll!(&mut other).is_pending());
        memory.release(&plain);
        assert!(matches!(one.await, Ok(Answer::Granted(_))));
        used_up(other.await);
    }

    #[test]
    fn every_shared_store_is_the_same_and_a_new_one_is_not() {
        let ttl = Duration::from_secs(1);
        let first = request("every_shared_store_is_the_same", ttl);
        Memory::shared().ask(&first, None).unwrap();
        let second = request("every_shared_store_is_the_same", ttl);
        assert!(matches!(Memory::shared().ask(&second, None), Ok(Answer::Contended { .. })));
        assert!(matches!(Memory::new().ask(&second, None), Ok(Answer::Granted(_))));
        assert_eq!(Memory::shared().release(&first), Released::Held);
    }
}
