//! The store in memory, for `memory://`: like a server, but of one process.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use tokio::time::timeout_at;

use crate::defer::MemoryJobs;
use crate::protocol::answer::{Answer, Contention, Failed, Queueing, Released, StoreFuture};
use crate::protocol::request::Request;
use crate::reuse::Values;
use crate::store::backend::{Backend, Facts, RenewKind, Wait};
use crate::store::shutdown::Shutdown;
use crate::store::subscriptions::{Alarms, Subscriptions};
use crate::store::tick::tick;
use crate::sys::random::{self, HashMap};
use crate::sys::sync::{Mutex, MutexGuard};
use crate::sys::time::{Instant, Moment, wall_clock};
use crate::value::applied::Applied;
use crate::value::error::{LockError, UnavailableReason};
use crate::value::fence::{COUNTER_MAX, Fence, FenceBlock};
use crate::value::holder::Holder;
use crate::value::key::LockKey;
use crate::value::limits::{CONFIRM_WINDOW, QUEUE_MAX};
use crate::value::mode::Mode;
use crate::value::token::Token;

/// The store of every `memory://` of the process, as one server is behind every equal URL.
static SHARED: LazyLock<Memory> = LazyLock::new(Memory::new);

/// Number of keys below which expired ones are not removed.
const SWEEP_FROM: usize = 64;

#[derive(Clone)]
pub(crate) struct Memory {
    table: Arc<Table>,
    subscriptions: Arc<Subscriptions>,
    /// Whether every lock is granted.
    is_disabled: bool,
    /// What is kept beside the locks.
    pub(crate) jobs: MemoryJobs,
    pub(crate) values: Values,
}

/// The held locks, the queues of their waiters, and the fences. No code under its mutex can panic
/// and leave it half changed.
#[derive(Debug, Default)]
struct LockTable {
    /// The holders of each key: an exclusive one, or those that share it, in the order in which
    /// they came. No key has an empty list.
    held: HashMap<String, Vec<MemoryHolder>>,
    /// The waiters of each key, the first one first. No key has an empty queue.
    queues: HashMap<String, VecDeque<MemoryWaiter>>,
    /// The number of keys at which expired ones are removed next.
    sweep_at: usize,
    last_fence: u64,
    /// The waiters that are to repeat their requests, until the table is unlocked.
    alarms: Alarms,
}

/// The table under its mutex.
#[derive(Default)]
struct Table(Mutex<LockTable>);

/// The locked table. Its alarms leave after the mutex, as they run wakers of the program.
struct LockedTable<'a> {
    table: MutexGuard<'a, LockTable>,
    /// After the table, so that it is dropped after that.
    alarms: Alarms,
}

impl Table {
    fn lock(&self) -> LockedTable<'_> {
        LockedTable { table: self.0.lock(), alarms: Alarms::default() }
    }
}

impl Deref for LockedTable<'_> {
    type Target = LockTable;

    fn deref(&self) -> &LockTable {
        &self.table
    }
}

impl DerefMut for LockedTable<'_> {
    fn deref_mut(&mut self) -> &mut LockTable {
        &mut self.table
    }
}

impl Drop for LockedTable<'_> {
    fn drop(&mut self) {
        self.alarms = mem::take(&mut self.table.alarms);
    }
}

#[derive(Debug)]
struct MemoryHolder {
    token: Token,
    expires: Moment,
    is_exclusive: bool,
}

#[derive(Debug)]
struct MemoryWaiter {
    token: Token,
    ttl: Duration,
    mode: Mode,
    number: u64,
}

impl Memory {
    /// A store of its own.
    pub(crate) fn new() -> Self {
        Self {
            table: Arc::default(),
            subscriptions: Arc::default(),
            is_disabled: false,
            jobs: MemoryJobs::default(),
            values: Values::default(),
        }
    }

    /// A store that excludes nobody.
    pub(crate) fn disabled() -> Self {
        Self { is_disabled: true, ..Self::new() }
    }

    /// The store of the process.
    pub(crate) fn shared() -> Self {
        SHARED.clone()
    }

    async fn wait(
        &self,
        request: &Request,
        wait: Duration,
        shutdown: &Shutdown,
    ) -> Result<Answer, Failed> {
        let subscription = self.subscriptions.join(0, 0);
        let until = Instant::now().checked_add(wait);
        loop {
            // A shutdown alarms the waiter.
            shutdown.check()?;
            let over = until.is_some_and(|until| until <= Instant::now());
            let answer = self.ask(request, Some(subscription.number()))?;
            // No request is in flight: if the caller drops this future, one release is enough.
            request.token.set_applied(Applied::Yes);
            let Answer::Contended(Contention { holder, queue: Queueing::Behind(rank), .. }) =
                &answer
            else {
                return Ok(answer);
            };
            if over {
                return Ok(answer);
            }
            request.ask.events().contended(holder, *rank);
            let pause = Instant::now() + tick(*rank, holder.free_within, true, random::fraction());
            let pause = until.map_or(pause, |until| until.min(pause));
            // Keeps the future small while it waits.
            drop(answer);
            // Whatever the signal is: the next request finds the lock that was handed off.
            let _ = timeout_at(pause, subscription.signal()).await;
        }
    }

    /// Requests the lock once, and enqueues the waiter of this number if it is contended.
    pub(crate) fn ask(&self, request: &Request, waiter: Option<u64>) -> Result<Answer, Failed> {
        let now = Moment::now();
        let mut table = self.table.lock();
        let locked = if self.is_disabled { &[] } else { request.ask.keys() };
        for (nth, locked_key) in locked.iter().enumerate() {
            let key = locked_key.as_str();
            let mode = locked_key.mode();
            let is_held = |table: &mut LockTable| {
                table.holder(key, &request.token.secret).is_some_and(|holder| holder.expires > now)
            };
            // A request that is sent again keeps what its token has.
            if is_held(&mut table) {
                continue;
            }
            // Before the hand-off, whose first waiter may be this one.
            if let Some(number) = waiter {
                table.enqueue(request, number);
            }
            // Waiters come first.
            table.hand_off(key, now, &self.subscriptions);
            let is_free = !table.queues.contains_key(key) && table.can_admit(key, mode, now);
            if is_free || is_held(&mut table) {
                continue;
            }
            let holder = Box::new(table.other_holder(key, mode, now));
            let queue = waiter.map_or(Queueing::Outside, |number| table.enqueue(request, number));
            return Ok(Answer::Contended(Contention { nth, holder, queue, ..Default::default() }));
        }
        let fenced = if request.ask.needs_fence_now() { request.ask.keys() } else { &[] };
        let fences = fenced.iter().map(|_| table.next_fences()).collect::<Result<_, _>>();
        // A waiter without a fence may be in the queue, or have the lock already.
        let fences = fences.map_err(|error| Failed { error, applied: Applied::Unknown })?;
        table.sweep(now);
        for key in locked {
            table.dequeue(key.as_str(), &request.token.secret);
            let expires = now.after(request.ask.ttl);
            let is_exclusive = key.mode().is_exclusive();
            let holder =
                MemoryHolder { token: request.token.secret.clone(), expires, is_exclusive };
            table.grant(key.as_str(), holder);
        }
        Ok(Answer::granted(request, now, fences))
    }

    fn lengthen(&self, request: &Request, ttl: Duration) -> bool {
        let now = Moment::now();
        let mut table = self.table.lock();
        let mut all = true;
        for key in request.ask.keys() {
            match table.holder(key.as_str(), &request.token.secret) {
                // As on a server, a renewal never shortens the lease.
                Some(holder) if holder.expires > now => {
                    holder.expires = holder.expires.max(now.after(ttl));
                }
                _ => all = false,
            }
        }
        all || self.is_disabled
    }

    fn remove(&self, request: &Request) -> Released {
        // In this order: time that passes between the two readings keeps the key longer.
        let keep = request.token.stays_for(Moment::now());
        let mut table = self.table.lock();
        let now = Moment::now();
        let mut all = true;
        for key in request.ask.keys().iter().map(LockKey::as_str) {
            let was_held = match table.holder(key, &request.token.secret) {
                Some(holder) => {
                    let was_held = holder.expires > now;
                    holder.expires = if was_held { now.after(keep) } else { now };
                    // What stays for `min_hold` is nobody's: no token can renew or release it.
                    holder.token = holder.token.spent();
                    was_held
                }
                // Without the lock, the token may be in the queue.
                None => {
                    table.dequeue(key, &request.token.secret);
                    false
                }
            };
            // Those behind it may share the lock.
            table.hand_off(key, now, &self.subscriptions);
            if was_held
                && !keep.is_zero()
                && let Some(first) = table.queues.get(key).and_then(VecDeque::front)
            {
                // The first waiter repeats its request, and learns how long the key is kept.
                let number = first.number;
                self.subscriptions.alarm_later(number, &mut table.alarms);
            }
            // A key without holders is forgotten.
            table.holders(key, now);
            all &= was_held;
        }
        if all || self.is_disabled { Released::Held } else { Released::NotHeld }
    }

    /// Whether a token holds a key.
    #[cfg(feature = "reuse")]
    pub(crate) fn is_held(&self, key: &str, token: &Token, now: Moment) -> bool {
        self.table.lock().holder(key, token).is_some_and(|holder| holder.expires > now)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.table.lock().held.is_empty()
    }
}

impl Backend for Memory {
    fn facts(&self) -> Facts {
        Facts { is_never_busy: self.is_disabled, ..Facts::default() }
    }

    fn apart(&self) -> Arc<dyn Backend> {
        Arc::new(self.clone())
    }

    fn ask(
        self: Arc<Self>,
        request: Request,
        wait: Wait,
    ) -> StoreFuture<'static, Result<Answer, Failed>> {
        Box::pin(async move {
            match wait {
                Wait::AtOnce(_) => Memory::ask(&self, &request, None),
                Wait::Waits(wait, shutdown) => self.wait(&request, wait, &shutdown).await,
            }
        })
    }

    fn release<'a>(&'a self, request: &'a Request) -> StoreFuture<'a, Result<Released, LockError>> {
        Box::pin(async move { Ok(self.remove(request)) })
    }

    fn renew<'a>(
        &'a self,
        request: &'a Request,
        ttl: Duration,
        _: RenewKind,
    ) -> StoreFuture<'a, Result<bool, LockError>> {
        Box::pin(async move { Ok(self.lengthen(request, ttl)) })
    }

    fn subscriptions(&self) -> Option<&Subscriptions> {
        Some(&self.subscriptions)
    }
}

impl LockTable {
    /// Adds the waiter of this number to the queue, unless its token is in the queue already.
    /// Returns its rank.
    fn enqueue(&mut self, request: &Request, number: u64) -> Queueing {
        let queue = self.queues.entry(request.ask.key.as_str().to_owned()).or_default();
        let rank = match queue.iter().position(|waiting| waiting.token == request.token.secret) {
            Some(rank) => {
                // A request that is sent again keeps its place.
                queue[rank].number = number;
                rank
            }
            None if queue.len() >= QUEUE_MAX => return Queueing::Full,
            None => {
                let token = request.token.secret.clone();
                let mode = request.ask.key.mode();
                queue.push_back(MemoryWaiter { token, ttl: request.ask.ttl, mode, number });
                queue.len() - 1
            }
        };
        Queueing::Behind(u32::try_from(rank).unwrap_or(u32::MAX))
    }

    /// Removes a token from the queue of a key.
    fn dequeue(&mut self, key: &str, token: &Token) {
        let queue = self.queues.get(key);
        let rank = queue.and_then(|queue| queue.iter().position(|other| other.token == *token));
        if let Some(rank) = rank {
            self.remove(key, rank);
        }
    }

    /// Removes the waiter of this rank from the queue of a key.
    fn remove(&mut self, key: &str, rank: usize) -> Option<MemoryWaiter> {
        let queue = self.queues.get_mut(key)?;
        let waiter = queue.remove(rank);
        if queue.is_empty() {
            self.queues.remove(key);
        }
        waiter
    }

    /// The holder with this token, also when its lease is over.
    fn holder(&mut self, key: &str, token: &Token) -> Option<&mut MemoryHolder> {
        self.held.get_mut(key)?.iter_mut().find(|holder| holder.token == *token)
    }

    /// The holders whose lease is not over. Forgets the others.
    fn holders(&mut self, key: &str, now: Moment) -> &[MemoryHolder] {
        if self.held.get_mut(key).is_some_and(|holders| !live_on(holders, now)) {
            self.held.remove(key);
        }
        self.held.get(key).map_or(&[], Vec::as_slice)
    }

    /// Whether a caller of this mode may hold the key beside its holders.
    fn can_admit(&mut self, key: &str, mode: Mode, now: Moment) -> bool {
        let holders = self.holders(key, now);
        !holders.iter().any(|holder| holder.is_exclusive) && mode.admits(holders.len())
    }

    /// The holder that a refused caller of this mode is shown, and how long the caller has to wait
    /// at most if nobody renews.
    fn other_holder(&mut self, key: &str, mode: Mode, now: Moment) -> Holder {
        let holders = self.holders(key, now);
        let ends = holders.iter().map(|holder| holder.expires.since(now));
        let left = match mode {
            Mode::Permits(_) => ends.min(),
            Mode::Exclusive | Mode::Shared => ends.max(),
        };
        let last = holders.last().map(|holder| holder.token.expose().as_bytes());
        last.map_or_else(Holder::default, |value| Holder::of(value, left))
    }

    /// Adds a holder. A token that holds the key already keeps the later end of its lease.
    fn grant(&mut self, key: &str, mut holder: MemoryHolder) {
        let holders = self.held.entry(key.to_owned()).or_default();
        holders.retain(|other| {
            let is_same = other.token == holder.token;
            if is_same {
                holder.expires = holder.expires.max(other.expires);
            }
            !is_same && !holder.is_exclusive
        });
        holders.push(holder);
    }

    /// Hands the lock off to the first waiters that still exist, as many as may share it. Each of
    /// them repeats its request, by which it has the lock for its whole ttl.
    fn hand_off(&mut self, key: &str, now: Moment, subscriptions: &Subscriptions) {
        while let Some(mode) = self.queues.get(key).and_then(|queue| Some(queue.front()?.mode)) {
            if !self.can_admit(key, mode, now) {
                return;
            }
            let Some(MemoryWaiter { token, ttl, number, .. }) = self.remove(key, 0) else { return };
            // A waiter without a subscription was dropped, and the next one is served.
            if subscriptions.alarm_later(number, &mut self.alarms) {
                // A stopped waiter must not keep the lock for the whole ttl.
                let expires = now.after(ttl.min(CONFIRM_WINDOW));
                self.grant(key, MemoryHolder { token, expires, is_exclusive: mode.is_exclusive() });
            }
        }
    }

    /// The next fences. They are made from the time, as on a server. So a resource that outlives
    /// the process never sees a smaller fence, unless the clock was set back.
    fn next_fences(&mut self) -> Result<FenceBlock, LockError> {
        let since_1970 = wall_clock().duration_since(SystemTime::UNIX_EPOCH);
        let micros = u64::try_from(since_1970.unwrap_or_default().as_micros()).unwrap_or(0);
        let next = Some(micros.max(self.last_fence.saturating_add(1)));
        let next = next.filter(|next| *next <= COUNTER_MAX);
        let used_up = || {
            let detail = "the counter of `memory://` is at 2^53";
            LockError::because(UnavailableReason::FencesUsedUp, detail)
        };
        let next = next.and_then(|next| Fence::try_from(next).ok()).ok_or_else(used_up)?;
        let before = Some(mem::replace(&mut self.last_fence, next.into()));
        Ok(FenceBlock::after(before.filter(|before| *before > 0), next))
    }

    /// Removes expired keys whenever the number of keys has doubled. So abandoned keys take a
    /// bounded share of the memory and a constant share of the time.
    fn sweep(&mut self, now: Moment) {
        if self.held.len() >= self.sweep_at.max(SWEEP_FROM) {
            self.held.retain(|_, holders| live_on(holders, now));
            self.sweep_at = self.held.len() * 2;
        }
    }
}

/// Forgets the holders whose lease is over; returns whether any is left.
fn live_on(holders: &mut Vec<MemoryHolder>, now: Moment) -> bool {
    holders.retain(|holder| holder.expires > now);
    !holders.is_empty()
}

/// Without the locks.
impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("is_disabled", &self.is_disabled).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ask::Ask;

    fn request(key: &str, ttl: Duration) -> Request {
        Request::of(Ask::new(key.into(), ttl, Moment::now()))
    }

    #[test]
    fn expired_keys_do_not_pile_up() {
        let memory = Memory::new();
        for nth in 0..10_000 {
            memory.ask(&request(&nth.to_string(), Duration::ZERO), None).unwrap();
        }
        assert!(memory.table.lock().held.len() <= SWEEP_FROM);
    }

    #[test]
    fn a_release_that_waits_for_the_store_keeps_the_key_as_long_as_any() {
        let memory = Memory::new();
        let kept = Duration::from_secs(20);
        let ask = Ask::new("order:42".into(), 3 * kept, Moment::now());
        let request = Request::of(Ask { min_hold: kept, ..ask });
        let sent = Moment::now();
        request.note_granted(sent);
        memory.ask(&request, None).unwrap();
        let table = memory.table.lock();
        let waits = Duration::from_millis(50);
        std::thread::scope(|scope| {
            let releasing = scope.spawn(|| memory.remove(&request));
            std::thread::sleep(waits);
            drop(table);
            assert_eq!(releasing.join().unwrap(), Released::Held);
        });
        let table = memory.table.lock();
        assert!(table.held["order:42"][0].expires >= sent.after(kept));
    }

    #[test]
    fn a_waiter_that_asks_again_keeps_its_place() {
        let memory = Memory::new();
        let second = Duration::from_secs(1);
        memory.ask(&request("order:42", second), None).unwrap();
        let first = request("order:42", second);
        let rival = request("order:42", second);
        for (request, number) in [(&first, 1), (&rival, 2), (&first, 3)] {
            memory.ask(request, Some(number)).unwrap();
        }
        let table = memory.table.lock();
        let queue: Vec<_> = table.queues["order:42"].iter().map(|waiting| waiting.number).collect();
        assert_eq!(queue, [3, 2]);
    }

    #[tokio::test]
    async fn fences_that_are_used_up_are_an_error_and_never_repeated() {
        let memory = Memory::new();
        let shutdown = Shutdown::default();
        memory.table.lock().last_fence = (1 << 53) - 1;
        let used_up = |answer: Result<Answer, Failed>| {
            let reason = UnavailableReason::FencesUsedUp;
            let Err(Failed { error, .. }) = answer else { panic!("{answer:?}") };
            assert!(matches!(error, LockError::Unavailable { reason: r, .. } if r == reason));
        };
        let fenced = |key| {
            let ask = Ask::new(LockKey::from(key), Duration::from_secs(60), Moment::now());
            let until = Some(ask.asked.after(Duration::MAX));
            Request::of(Ask { fenced: true, until, ..ask })
        };
        let last = fenced("order:42");
        let Ok(Answer::Granted(grant)) = memory.ask(&last, None) else { panic!() };
        assert_eq!(
            grant.fences.iter().map(|block| u64::from(block.last())).collect::<Vec<_>>(),
            [1 << 53]
        );
        used_up(memory.ask(&fenced("order:43"), None));
        memory.remove(&last);

        // A waiter that gets no fence gets the error, and the waiters after it are served.
        memory.table.lock().last_fence -= 1;
        let plain = request("order:42", Duration::from_secs(60));
        assert!(matches!(memory.ask(&plain, None), Ok(Answer::Granted(_))));
        let first = fenced("order:42");
        let other = fenced("order:42");
        let mut one = std::pin::pin!(memory.wait(&first, Duration::MAX, &shutdown));
        let mut other = std::pin::pin!(memory.wait(&other, Duration::MAX, &shutdown));
        assert!(futures::poll!(&mut one).is_pending() && futures::poll!(&mut other).is_pending());
        memory.remove(&plain);
        assert!(matches!(one.await, Ok(Answer::Granted(_))));
        memory.remove(&first);
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
        assert_eq!(Memory::shared().remove(&first), Released::Held);
    }

    /// What a waker of an executor may do when it is woken.
    struct Acting<F: Fn() + Send + Sync>(F);

    impl<F: Fn() + Send + Sync> std::task::Wake for Acting<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    #[test]
    fn a_waker_may_use_the_store_that_hands_a_lock_off() {
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let memory = Memory::new();
            let ttl = Duration::from_secs(60);
            let held = request("order:42", ttl);
            memory.ask(&held, None).unwrap();
            let subscription = memory.subscriptions.join(0, 0);
            let waits = request("order:42", ttl);
            memory.ask(&waits, Some(subscription.number())).unwrap();
            let used = memory.clone();
            let waker = Arc::new(Acting(move || assert!(!used.is_empty()))).into();
            let mut signal = std::pin::pin!(subscription.signal());
            let polled = signal.as_mut().poll(&mut std::task::Context::from_waker(&waker));
            assert!(polled.is_pending());
            assert_eq!(memory.remove(&held), Released::Held);
            let polled = signal.poll(&mut std::task::Context::from_waker(&waker));
            done.send(polled.is_ready()).unwrap();
        });
        // Otherwise it waits for itself.
        assert_eq!(is_done.recv_timeout(Duration::from_secs(10)), Ok(true));
    }
}
