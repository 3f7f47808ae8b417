//! Where locks are kept. Every backend has the same meaning; only what can go wrong differs.

mod memory;
mod redis;

use std::time::Duration;

use crate::error::LockError;
use crate::key::LockKey;
use crate::lease::Moment;
use crate::token::Token;

pub(crate) use memory::Memory;
pub(crate) use redis::Redis;

/// One acquisition as a backend sees it.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) key: LockKey,
    pub(crate) token: Token,
    pub(crate) ttl: Duration,
}

/// What came of asking for a lock.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It is held. `sent` is when the request that brought it left; `resent` tells that there was
    /// an earlier one whose fate is unknown.
    Granted { sent: Moment, resent: bool },
    /// Somebody else holds it. `resent` as above.
    Busy { owner: Option<String>, left: Option<Duration>, resent: bool },
}

/// Why there is no answer. `written` tells that the token may have been written all the same.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: LockError,
    pub(crate) written: bool,
}

#[derive(Debug)]
pub(crate) enum Backend {
    Memory(Memory),
    Redis(Box<Redis>),
}

impl Backend {
    /// The same locks through a connection of its own, for a thread with its own runtime.
    pub(crate) fn apart(&self) -> Self {
        match self {
            Backend::Memory(memory) => Backend::Memory(memory.clone()),
            Backend::Redis(redis) => Backend::Redis(Box::new(redis.apart())),
        }
    }

    /// Asks once for a lock. Idempotent for a token. When it is dropped, the token may have been
    /// written all the same.
    pub(crate) async fn acquire(&self, claim: &Claim) -> Result<Answer, Failed> {
        match self {
            Backend::Memory(memory) => Ok(memory.acquire(claim)),
            Backend::Redis(redis) => redis.acquire(claim).await,
        }
    }

    /// Takes the token away wherever it is; tells whether it held the lock. Idempotent.
    pub(crate) async fn release(&self, claim: &Claim) -> Result<bool, LockError> {
        match self {
            Backend::Memory(memory) => Ok(memory.release(claim)),
            Backend::Redis(redis) => redis.release(claim).await,
        }
    }

    /// Ends the connections; the next call makes new ones.
    pub(crate) fn disconnect(&self) {
        match self {
            Backend::Memory(_) => {}
            Backend::Redis(redis) => redis.disconnect(),
        }
    }
}
