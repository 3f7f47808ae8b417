//! `memory://`: the locks of one process, with the meaning of a server and nothing to install.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use super::{Answer, Claim};
use crate::lease::Moment;
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
}

#[derive(Debug)]
struct Held {
    token: Token,
    expires: Moment,
}

impl Memory {
    /// A store of its own.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Store { held: HashMap::new(), sweep_at: SWEEP_FROM })))
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
        Answer::Granted { sent: now, resent: false }
    }

    pub(crate) fn release(&self, claim: &Claim) -> bool {
        let now = Moment::now();
        let mut store = self.store();
        let ours = store.held.get(claim.key.as_str()).is_some_and(|held| held.token == claim.token);
        // An expired entry is taken out too, but was not held any more.
        ours && store.held.remove(claim.key.as_str()).is_some_and(|held| held.expires > now)
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        // Nothing that runs under this mutex leaves the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
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
    use std::time::Duration;

    use super::*;

    fn claim(key: &str, ttl: Duration) -> Claim {
        Claim { key: key.into(), token: Token::new("test").unwrap(), ttl }
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
        assert!(matches!(Memory::new().acquire(&second), Answer::Granted { .. }));
        assert!(Memory::shared().release(&first));
    }
}
