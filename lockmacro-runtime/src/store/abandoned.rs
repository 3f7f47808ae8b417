//! Tokens of abandoned requests, which may still be granted their locks.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::value::random::HashMap;
use crate::value::sync::{Mutex, MutexGuard};

/// Abandoned tokens. They may still be in a queue, or get there: a request with one may still
/// arrive.
#[derive(Debug, Default)]
pub(crate) struct AbandonedTokens {
    /// Each is notified when the token was granted its lock.
    tokens: Mutex<HashMap<u32, Arc<Notify>>>,
}

/// An abandoned token; dropping this forgets it.
#[derive(Debug)]
pub(crate) struct AbandonedToken {
    all: Arc<AbandonedTokens>,
    bits: u32,
    granted: Arc<Notify>,
}

impl AbandonedTokens {
    /// Records from now on whether the token with these random bits is granted its lock.
    pub(crate) fn abandon(self: &Arc<Self>, bits: u64) -> AbandonedToken {
        let bits = half_in_numbers(bits);
        let granted = Arc::clone(self.tokens().entry(bits).or_default());
        AbandonedToken { all: Arc::clone(self), bits, granted }
    }

    /// Records a grant to a number that no waiter has.
    pub(crate) fn was_granted(&self, number: u64) {
        if let Some(granted) = self.tokens().get(&half_in_numbers(number)) {
            granted.notify_one();
        }
    }

    pub(crate) fn tokens(&self) -> MutexGuard<'_, HashMap<u32, Arc<Notify>>> {
        self.tokens.lock()
    }
}

/// The half of a token's bits that is in its waiter's numbers as well: see `Waiters::join`. A token
/// that is mistaken for another one is released once more, which does no harm to an abandoned one.
fn half_in_numbers(bits: u64) -> u32 {
    (bits >> 32) as u32
}

impl AbandonedToken {
    /// Waits until the token is granted the lock, or was since the last call.
    pub(crate) async fn granted(&self) {
        self.granted.notified().await;
    }
}

impl Drop for AbandonedToken {
    fn drop(&mut self) {
        self.all.tokens().remove(&self.bits);
    }
}
