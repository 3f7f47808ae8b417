//! The table of the store in memory: the held locks, the queues of their waiters, and the fences.

use std::collections::VecDeque;
use std::mem;
use std::time::{Duration, SystemTime};

use crate::protocol::answer::{OtherHolder, Queueing};
use crate::protocol::request::Request;
use crate::store::hand_off::HandOff;
use crate::store::waiters::Waiters;
use crate::value::error::{LockError, Unavailability};
use crate::value::fence::{Fence, FenceBlock};
use crate::value::limits::{CONFIRM_WINDOW, QUEUE_MAX};
use crate::value::mode::Mode;
use crate::value::random::HashMap;
use crate::value::time::{Moment, wall_clock};
use crate::value::token::Token;

/// Number of keys below which expired ones are not removed.
pub(crate) const SWEEP_FROM: usize = 64;

#[derive(Debug)]
pub(crate) struct Table {
    /// The holders of each key: an exclusive one, or those that share it, in the order in which
    /// they came. No key has an empty list.
    pub(crate) held: HashMap<String, Vec<Holder>>,
    /// The waiters of each key, the first one first. No key has an empty queue.
    pub(crate) queues: HashMap<String, VecDeque<MemoryWaiter>>,
    /// The number of keys at which expired ones are removed next.
    pub(crate) sweep_at: usize,
    pub(crate) last_fence: u64,
}

#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) token: Token,
    pub(crate) expires: Moment,
    pub(crate) is_exclusive: bool,
}

#[derive(Debug)]
pub(crate) struct MemoryWaiter {
    pub(crate) token: Token,
    pub(crate) ttl: Duration,
    pub(crate) fenced: bool,
    pub(crate) mode: Mode,
    pub(crate) number: u64,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self {
            held: HashMap::default(),
            queues: HashMap::default(),
            sweep_at: SWEEP_FROM,
            last_fence: 0,
        }
    }

    /// Forgets every lock and waiter. Fences still grow.
    #[cfg(feature = "test-util")]
    pub(crate) fn reset(&mut self) {
        *self = Self { last_fence: self.last_fence, ..Self::new() };
    }

    /// Adds the waiter of this number to the queue, unless its token is in the queue already.
    /// Returns its rank.
    pub(crate) fn enqueue(&mut self, request: &Request, number: u64) -> Queueing {
        let queue = self.queues.entry(request.key.as_str().to_owned()).or_default();
        let (token, ttl, fenced) = (request.token.clone(), request.ttl, request.is_fenced());
        let rank = match queue.iter().position(|waiting| waiting.token == token) {
            Some(rank) => {
                // A request that is sent again keeps its place. Another caller may need a fence by
                // now.
                (queue[rank].number, queue[rank].fenced) = (number, fenced);
                rank
            }
            None if queue.len() >= QUEUE_MAX => return Queueing::Full,
            None => {
                let mode = request.key.mode();
                queue.push_back(MemoryWaiter { token, ttl, fenced, mode, number });
                queue.len() - 1
            }
        };
        Queueing::Left(u32::try_from(rank).unwrap_or(u32::MAX))
    }

    /// Removes a token from the queue of a key.
    pub(crate) fn dequeue(&mut self, key: &str, token: &Token) {
        if let Some(queue) = self.queues.get_mut(key) {
            if let Some(rank) = queue.iter().position(|waiting| waiting.token == *token) {
                queue.remove(rank);
            }
            if queue.is_empty() {
                self.queues.remove(key);
            }
        }
    }

    /// The holder with this token, also when its lease is over.
    pub(crate) fn holder(&mut self, key: &str, token: &Token) -> Option<&mut Holder> {
        self.held.get_mut(key)?.iter_mut().find(|holder| holder.token == *token)
    }

    /// The holders whose lease is not over. Forgets the others.
    pub(crate) fn holders(&mut self, key: &str, now: Moment) -> &[Holder] {
        if self.held.get_mut(key).is_some_and(|holders| !live_on(holders, now)) {
            self.held.remove(key);
        }
        self.held.get(key).map_or(&[], Vec::as_slice)
    }

    /// Whether a caller of this mode may hold the key beside its holders.
    pub(crate) fn admits(&mut self, key: &str, mode: Mode, now: Moment) -> bool {
        let holders = self.holders(key, now);
        !holders.iter().any(|holder| holder.is_exclusive) && mode.admits(holders.len())
    }

    /// The holder that a refused caller of this mode is shown, and how long the caller has to wait
    /// at most if nobody renews.
    pub(crate) fn other_holder(&mut self, key: &str, mode: Mode, now: Moment) -> OtherHolder {
        let holders = self.holders(key, now);
        let ends = holders.iter().map(|holder| holder.expires.since(now));
        let left = match mode {
            Mode::Permits(_) => ends.min(),
            Mode::Exclusive | Mode::Shared => ends.max(),
        };
        let last = holders.last().map(|holder| holder.token.expose().as_bytes());
        last.map_or_else(OtherHolder::default, |value| OtherHolder::of(value, left))
    }

    /// Adds a holder. A token that holds the key already keeps the later end of its lease.
    pub(crate) fn grant(&mut self, key: &str, mut holder: Holder) {
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

    /// Hands the lock off to the first waiters that still exist, as many as may share it.
    pub(crate) fn hand_off(&mut self, key: &str, now: Moment, waiters: &Waiters) {
        while let Some(mode) = self.queues.get(key).and_then(|queue| Some(queue.front()?.mode)) {
            if !self.admits(key, mode, now) {
                return;
            }
            let Some(queue) = self.queues.get_mut(key) else { return };
            let next = queue.pop_front();
            if queue.is_empty() {
                self.queues.remove(key);
            }
            let Some(MemoryWaiter { token, ttl, fenced, number, .. }) = next else {
                return;
            };
            let fences = fenced.then(|| self.fences()).flatten();
            if fenced && fences.is_none() {
                // The waiter repeats its request, and gets the error.
                waiters.alarm(number);
                continue;
            }
            // Only for the confirm window: a stopped waiter must not keep the lock for the whole
            // ttl.
            let ttl = ttl.min(CONFIRM_WINDOW);
            let (expires, is_exclusive) = (now.after(ttl), mode.is_exclusive());
            self.grant(key, Holder { token: token.clone(), expires, is_exclusive });
            let hand_off = HandOff { received: now, connection: 0, at: 0, ttl, fences };
            if !waiters.grant(number, hand_off)
                && let Some(holder) = self.holder(key, &token)
            {
                holder.expires = now;
            }
        }
    }

    /// Checks that `count` fences are left.
    pub(crate) fn has_fences(&self, count: usize) -> Result<(), LockError> {
        let last = u64::try_from(count).ok().and_then(|count| self.last_fence.checked_add(count));
        match last.map(Fence::try_from) {
            Some(Ok(_)) => Ok(()),
            _ if count == 0 => Ok(()),
            _ => Err(LockError::unavailable(
                Unavailability::FencesUsedUp,
                "the counter of `memory://` is at 2^53",
            )),
        }
    }

    /// The next fences. They are made from the time, as on a server. So a resource that outlives
    /// the process never sees a smaller fence, unless the clock was set back.
    pub(crate) fn fences(&mut self) -> Option<FenceBlock> {
        let since_1970 = wall_clock().duration_since(SystemTime::UNIX_EPOCH);
        let micros = u64::try_from(since_1970.unwrap_or_default().as_micros()).unwrap_or(0);
        let next = Fence::try_from(micros.max(self.last_fence.saturating_add(1))).ok()?;
        let before = Some(mem::replace(&mut self.last_fence, next.into()));
        Some(FenceBlock::after(before.filter(|before| *before > 0), next))
    }

    /// Removes expired keys whenever the number of keys has doubled. So abandoned keys take a
    /// bounded share of the memory and a constant share of the time.
    pub(crate) fn sweep(&mut self, now: Moment) {
        if self.held.len() >= self.sweep_at {
            self.held.retain(|_, holders| live_on(holders, now));
            self.sweep_at = SWEEP_FROM.max(self.held.len() * 2);
        }
    }
}

/// Forgets the holders whose lease is over; returns whether any is left.
fn live_on(holders: &mut Vec<Holder>, now: Moment) -> bool {
    holders.retain(|holder| holder.expires > now);
    !holders.is_empty()
}
