//! The servers behind a store: what the engine asks of them besides locks.

use std::time::Duration;

use crate::protocol::answer::Asked;
use crate::protocol::request::Request;
use crate::store::waiters::AbandonedToken;
use crate::value::error::LockError;
use crate::value::key::LockKey;

/// The servers that keep the locks. Each default is that of a store without a server.
pub(crate) trait Servers: Send + Sync {
    /// The address of the server of the request's first key, or of all nodes of a Redlock.
    fn address(&self, _: &Request) -> Option<Box<str>> {
        None
    }

    /// How long an answer may take.
    fn answer_time(&self) -> Duration {
        Duration::ZERO
    }

    /// The shortest recent round trip to the server of a key; zero while it is not known.
    fn round_trip(&self, _: &LockKey) -> Duration {
        Duration::ZERO
    }

    /// Whether several servers decide together.
    fn are_several(&self) -> bool {
        false
    }

    /// Whether locks may be forgotten while this process lives.
    fn may_forget(&self) -> bool {
        false
    }

    /// Whether the server has to be checked while locks are held, because another one may replace
    /// it at any time.
    fn may_fail_over(&self) -> bool {
        false
    }

    /// Whether a server of the request's keys is lost, so that it grants nothing. Never true of a
    /// Redlock, where a majority is enough.
    fn is_lost(&self, _: &Request) -> bool {
        false
    }

    /// Whether to log a call that failed because of the servers at WARN: not while a server is
    /// lost, because that loss was logged.
    fn is_news(&self) -> bool {
        true
    }

    /// Sets a callback for when the server may not be the one that granted the locks any more. A
    /// Redlock never calls it, as a single node does not decide.
    fn on_change(&self, _: Box<dyn Fn() + Send + Sync>) {}

    /// Fails for a request that is refused without asking a server.
    fn check_request(&self, _: &Request) -> Result<(), LockError> {
        Ok(())
    }

    /// Records from now on whether the abandoned token with these random bits is granted its lock;
    /// `None` where there can be no later grant. In memory only a waiter that exists gets one, and
    /// a Redlock has no queue.
    fn abandon(&self, _bits: u64) -> Option<AbandonedToken> {
        None
    }

    /// Makes every waiter in a queue repeat its request.
    fn alarm(&self) {}

    /// Checks that the server is still the same.
    fn check(&self) -> Asked<'_, ()> {
        Box::pin(async {})
    }

    /// Closes the connections for good. A later call opens one for itself only.
    fn close(&self) {}
}
