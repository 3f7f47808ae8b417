//! `memory://`: the locks of one process, with the meaning of a server and nothing to install.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, timeout_at};

use crate::jobs::memory::MemoryJobs;
use crate::protocol::answer::{Answer, Failed, Grant, Queueing, Released};
use crate::protocol::request::Request;
use crate::protocol::shutdown::Shutdown;
use crate::store::waiters::{HandOff, Signal, Waiters, tick};
use crate::value::error::LockError;
use crate::value::fence::Fence;
use crate::value::key::LockKey;
use crate::value::limits::{CONFIRM_WINDOW, QUEUE_MAX};
#[cfg(feature = "defer")]
use crate::value::sync::{Mutex, MutexGuard};
use crate::value::time::Moment;
use crate::value::token::{Token, label_of};
use crate::value::unavailability::Unavailability;

/// Below this many keys nobody looks for expired ones.
const SWEEP_FROM: usize = 64;

/// What is behind every `memory://` of the process, as one server is behind every equal URL.
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

#[derive(Debug)]
struct Table {
    held: HashMap<String, Held>,
    /// Who waits, the longest first. No key has an empty line.
    lines: HashMap<String, VecDeque<Waiting>>,
    /// The number of keys at which expired ones are thrown out next.
    sweep_at: usize,
    last_fence: u64,
    last_ticket: u64,
}

#[derive(Debug)]
struct Held {
    token: Token,
    expires: Moment,
}

#[derive(Debug)]
struct Waiting {
    /// Those of a line grow from first to last.
    ticket: u64,
    token: Token,
    ttl: Duration,
    fenced: bool,
    number: u64,
}

/// One who waits, and the ticket of its place once it has one.
struct Ticket {
    number: u64,
    ticket: Option<u64>,
}

impl Memory {
    /// A store of its own.
    pub(crate) fn new() -> Self {
        let table = Table {
            held: HashMap::new(),
            lines: HashMap::new(),
            sweep_at: SWEEP_FROM,
            last_fence: 0,
            last_ticket: 0,
        };
        Self {
            table: Arc::new(Mutex::new(table)),
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
        let waiter = self.waiters.join(0, 0, 0);
        let mut place = Ticket { number: waiter.number(), ticket: None };
        let until = Instant::now().checked_add(wait);
        loop {
            // It is alarmed when that changes.
            shutdown.check()?;
            let over = until.is_some_and(|until| until <= Instant::now());
            let answer = self.ask(request, Some(&mut place))?;
            // Nothing is on its way: who is dropped now is out with one release.
            request.settle(true);
            let Answer::Busy { left, queue: Queueing::Left(rank), .. } = &answer else {
                return Ok(answer);
            };
            if over {
                return Ok(answer);
            }
            let pause = Instant::now() + tick(*rank, *left, true, fastrand::f64());
            let pause = until.map_or(pause, |until| until.min(pause));
            // Not kept while it waits.
            drop(answer);
            let signal = timeout_at(pause, waiter.signal()).await;
            shutdown.check()?;
            if let Ok(Signal::Granted(hand_off)) = signal {
                let HandOff { received: sent, ttl, fence, .. } = *hand_off;
                if sent.elapsed() < ttl / 2 {
                    let (at, resent, fences) = (sent, false, fence.into_iter().collect());
                    return Ok(Answer::Granted(Grant { sent, at, ttl, resent, fences }));
                }
                // Too little may be left of it: asking again confirms it, or stands in line.
            }
        }
    }

    /// Asks once, and stands in line as `waiter` if the lock is busy.
    fn ask(&self, request: &Request, mut waiter: Option<&mut Ticket>) -> Result<Answer, Failed> {
        let now = Moment::now();
        let mut table = self.table();
        let fenced = if request.fenced { request.keys() } else { &[] };
        // Before anything is changed.
        table.has_fences(fenced.len()).map_err(|error| Failed { error, written: true })?;
        let locked = if self.disabled { &[] } else { request.keys() };
        for (nth, key) in locked.iter().map(LockKey::as_str).enumerate() {
            if table.held.get(key).is_none_or(|held| held.expires <= now) {
                if let Some(place) = waiter.as_deref_mut() {
                    table.stand_in_line(request, place);
                }
                table.hand_off(key, now, &self.waiters);
            }
            if let Some(held) = table.held.get(key)
                && held.expires > now
                && held.token != request.token
            {
                let owner = label_of(held.token.expose().as_bytes());
                let left = Some(held.expires.since(now));
                let queue = match waiter {
                    Some(place) => table.stand_in_line(request, place),
                    None => Queueing::Outside,
                };
                return Ok(Answer::Busy { nth, owner, left, queue, resent: false });
            }
        }
        table.sweep(now);
        for key in locked.iter().map(LockKey::as_str) {
            if let Some(ticket) = waiter.as_ref().and_then(|place| place.ticket) {
                table.leave_line(key, |queue| {
                    queue.binary_search_by_key(&ticket, |one| one.ticket).ok()
                });
            }
            let held = Held { token: request.token.clone(), expires: now.after(request.ttl) };
            table.held.insert(key.to_owned(), held);
        }
        let fences = fenced.iter().filter_map(|_| table.fence()).collect();
        Ok(Answer::Granted(Grant { sent: now, at: now, ttl: request.ttl, resent: false, fences }))
    }

    /// Has everybody ask again who stands in line.
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
            match table.held.get_mut(key.as_str()) {
                Some(held) if held.token == request.token && held.expires > now => {
                    // As on a server, what is left is never shortened.
                    held.expires = held.expires.max(now.after(ttl));
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
        // In that order: the later it gets meanwhile, the longer the key stays.
        let (keep, mut table, now) = (request.keep(), self.table(), Moment::now());
        let mut all = true;
        for key in request.keys().iter().map(LockKey::as_str) {
            let Some(held) = table.held.get_mut(key).filter(|held| held.token == request.token)
            else {
                // Who holds the lock is not in line.
                if request.until.is_some() {
                    let own = |waiting: &Waiting| waiting.token == request.token;
                    table.leave_line(key, |queue| queue.iter().position(own));
                }
                all = false;
                continue;
            };
            let was_held = held.expires > now;
            if was_held && !keep.is_zero() {
                held.expires = now.after(keep);
                held.token = held.token.spent();
                // Who is first asks again, and learns when that is over.
                if let Some(first) = table.lines.get(key).and_then(VecDeque::front) {
                    self.waiters.alarm(first.number);
                }
            } else {
                table.held.remove(key);
                table.hand_off(key, now, &self.waiters);
            }
            all &= was_held;
        }
        if all { Released::Held } else { Released::NotHeld }
    }

    #[cfg(test)]
    pub(crate) fn holds_nothing(&self) -> bool {
        self.table().held.is_empty()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing that runs under this mutex leaves the map half changed.
        self.table.lock()
    }
}

impl Table {
    /// Takes a place, or keeps the one it has.
    fn stand_in_line(&mut self, request: &Request, place: &mut Ticket) -> Queueing {
        let queue = self.lines.entry(request.key.as_str().to_owned()).or_default();
        let ticket = place.ticket.unwrap_or(0);
        let rank = match queue.binary_search_by_key(&ticket, |waiting| waiting.ticket) {
            Ok(rank) => rank,
            Err(_) if queue.len() >= QUEUE_MAX => return Queueing::Full,
            Err(_) => {
                self.last_ticket += 1;
                let (ticket, number) = (self.last_ticket, place.number);
                let (token, ttl, fenced) = (request.token.clone(), request.ttl, request.fenced);
                queue.push_back(Waiting { ticket, token, ttl, fenced, number });
                place.ticket = Some(ticket);
                queue.len() - 1
            }
        };
        Queueing::Left(u32::try_from(rank).unwrap_or(u32::MAX))
    }

    /// Takes one out of a line.
    fn leave_line(&mut self, key: &str, find: impl Fn(&VecDeque<Waiting>) -> Option<usize>) {
        if let Some(queue) = self.lines.get_mut(key) {
            if let Some(rank) = find(queue) {
                queue.remove(rank);
            }
            if queue.is_empty() {
                self.lines.remove(key);
            }
        }
    }

    /// Hands a free lock to who has waited longest and is still there.
    fn hand_off(&mut self, key: &str, now: Moment, waiters: &Waiters) {
        while let Some(queue) = self.lines.get_mut(key) {
            let next = queue.pop_front();
            if queue.is_empty() {
                self.lines.remove(key);
            }
            let Some(Waiting { token, ttl, fenced, number, .. }) = next else {
                return;
            };
            let fence = fenced.then(|| self.fence()).flatten();
            if fenced && fence.is_none() {
                // It asks again, and is told.
                waiters.alarm(number);
                continue;
            }
            // Until it is confirmed: who stands still must not keep it for the whole ttl.
            let ttl = ttl.min(CONFIRM_WINDOW);
            self.held.insert(key.to_owned(), Held { token, expires: now.after(ttl) });
            if waiters.grant(number, HandOff { received: now, connection: 0, at: 0, ttl, fence }) {
                return;
            }
            self.held.remove(key);
        }
    }

    /// Whether so many fences are left.
    fn has_fences(&self, count: usize) -> Result<(), LockError> {
        let last = u64::try_from(count).ok().and_then(|count| self.last_fence.checked_add(count));
        match last.map(Fence::try_from) {
            Some(Ok(_)) => Ok(()),
            _ if count == 0 => Ok(()),
            _ => Err(LockError::Unavailable {
                reason: Unavailability::FencesUsedUp,
                detail: "the counter of `memory://` is at 2^53".to_owned(),
            }),
        }
    }

    /// The next fence. It is the time, as on a server, so that a resource which outlives the
    /// process meets no smaller one unless the clock was set back.
    fn fence(&mut self) -> Option<Fence> {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let micros = u64::try_from(since_1970.unwrap_or_default().as_micros()).unwrap_or(0);
        let next = Fence::try_from(micros.max(self.last_fence.saturating_add(1))).ok()?;
        self.last_fence = next.into();
        Some(next)
    }

    /// Throws expired keys out whenever the number of keys has doubled, so that abandoned ones
    /// cost a bounded share of the memory and a constant share of the time.
    fn sweep(&mut self, now: Moment) {
        if self.held.len() >= self.sweep_at {
            self.held.retain(|_, held| held.expires > now);
            self.sweep_at = SWEEP_FROM.max(self.held.len() * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: &str, ttl: Duration) -> Request {
        Request::new(key.into(), Token::new("test", "", "", Moment::now()).unwrap(), ttl)
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
        assert!(memory.table().held["order:42"].expires >= sent.after(kept));
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
        assert_eq!(fences.iter().map(u64::from).collect::<Vec<_>>(), [1 << 53]);
        used_up(memory.ask(&fenced("order:43"), None));
        memory.release(&last);

        // Who is in line when the last one is given is told so, and those behind it are served.
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
        assert!(matches!(Memory::shared().ask(&second, None), Ok(Answer::Busy { .. })));
        assert!(matches!(Memory::new().ask(&second, None), Ok(Answer::Granted(_))));
        assert_eq!(Memory::shared().release(&first), Released::Held);
    }
}
