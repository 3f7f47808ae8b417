//! `memory://`: the locks of one process, with the meaning of a server and nothing to install.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::{Answer, Claim, Grant, Released};
use crate::clock::Moment;
use crate::fence::Fence;
use crate::token::{Token, label_of};

/// Below this many keys nobody looks for expired ones.
const SWEEP_FROM: usize = 64;

/// What is behind every `memory://` of the process, as one server is behind every equal URL.
static SHARED: LazyLock<Memory> = LazyLock::new(Memory::new);

#[derive(Debug, Clone)]
pub(crate) struct Memory(Arc<Mutex<Store>>);

#[derive(Debug)]
struct Store {
    held: HashMap<String, Held>,
    /// The number of keys at which expired ones are thrown out next.
    sweep_at: usize,
    last_fence: u64,
}

#[derive(Debug)]
struct Held {
    token: Token,
    expires: Moment,
}

impl Memory {
    /// A store of its own.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Store {
            held: HashMap::new(),
            sweep_at: SWEEP_FROM,
            last_fence: 0,
        })))
    }

    /// The store of the process.
    pub(crate) fn shared() -> Self {
        SHARED.clone()
    }

    pub(crate) fn acquire(&self, claim: &Claim) -> Answer {
        let now = Moment::now();
        let mut store = self.store();
        if let Some(held) = store.held.get(claim.key.as_str())
            && held.expires > now
            && held.token != claim.token
        {
            return Answer::Busy {
                owner: label_of(held.token.expose().as_bytes()),
                left: Some(held.expires.since(now)),
                resent: false,
            };
        }
        store.sweep(now);
        let held = Held { token: claim.token.clone(), expires: now.after(claim.ttl) };
        store.held.insert(claim.key.as_str().to_owned(), held);
        let fence = claim.fenced.then(|| store.fence()).flatten();
        Answer::Granted(Grant { sent: now, resent: false, fence })
    }

    pub(crate) fn renew(&self, claim: &Claim, ttl: Duration) -> bool {
        let now = Moment::now();
        let mut store = self.store();
        let held = store.held.get_mut(claim.key.as_str());
        match held.filter(|held| held.token == claim.token && held.expires > now) {
            Some(held) => {
                // As on a server, what is left is never shortened.
                held.expires = held.expires.max(now.after(ttl));
                true
            }
            None => false,
        }
    }

    pub(crate) fn release(&self, claim: &Claim) -> Released {
        let now = Moment::now();
        let mut store = self.store();
        let Entry::Occupied(mut entry) = store.held.entry(claim.key.as_str().to_owned()) else {
            return Released::NotHeld;
        };
        let held = entry.get_mut();
        if held.token != claim.token {
            return Released::NotHeld;
        }
        let (was_held, keep) = (held.expires > now, claim.keep());
        if was_held && !keep.is_zero() {
            held.expires = now.after(keep);
            held.token = held.token.spent();
        } else {
            entry.remove();
        }
        if was_held { Released::Held } else { Released::NotHeld }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        // Nothing that runs under this mutex leaves the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// The next fence. It is the time, as on a server, so that a resource which outlives the
    /// process meets no smaller one unless the clock was set back.
    fn fence(&mut self) -> Option<Fence> {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let micros = u64::try_from(since_1970.unwrap_or_default().as_micros()).unwrap_or(0);
        self.last_fence = micros.max(self.last_fence + 1);
        Fence::try_from(self.last_fence).ok()
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

    fn claim(key: &str, ttl: Duration) -> Claim {
        Claim::new(key.into(), Token::new("test").unwrap(), ttl)
    }

    #[test]
    fn expired_keys_do_not_pile_up() {
        let memory = Memory::new();
        for nth in 0..10_000 {
            memory.acquire(&claim(&nth.to_string(), Duration::ZERO));
        }
        assert!(memory.store().held.len() <= SWEEP_FROM);
    }

    #[test]
    fn every_shared_store_is_the_same_and_a_new_one_is_not() {
        let ttl = Duration::from_secs(1);
        let first = claim("every_shared_store_is_the_same", ttl);
        Memory::shared().acquire(&first);
        let second = claim("every_shared_store_is_the_same", ttl);
        assert!(matches!(Memory::shared().acquire(&second), Answer::Busy { .. }));
        assert!(matches!(Memory::new().acquire(&second), Answer::Granted(_)));
        assert_eq!(Memory::shared().release(&first), Released::Held);
    }
}
