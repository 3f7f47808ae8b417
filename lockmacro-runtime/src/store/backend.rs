//! The trait of a kind of store.

use std::any::Any;
use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::answer::{Answer, Failed, Released, StoreFuture};
use crate::protocol::ask::Ask;
use crate::protocol::request::Request;
use crate::store::shutdown::Shutdown;
use crate::store::subscriptions::Subscriptions;
use crate::sys::time::Instant;
use crate::value::error::LockError;
use crate::value::fence::{Fence, FenceCheck};
use crate::value::key::LockKey;

/// Unanswered commands that fit into the manager's timeout.
pub(crate) const CALLS_PER_TIMEOUT: u32 = 4;

/// How long a request is repeated.
#[derive(Debug, Clone)]
pub(crate) enum Wait {
    /// The caller does not wait for the lock. A failing server is asked again until then, or within
    /// the manager's timeout.
    AtOnce(Option<Instant>),
    /// The caller waits for the lock for so long, or until the manager is shut down.
    Waits(Duration, Arc<Shutdown>),
}

/// How a lock is renewed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RenewKind {
    /// With replication it fails unless replicas have acknowledged the renewal. Failed calls are
    /// repeated for no longer than `within`; what is `left` of the lease says how urgent it is.
    Acknowledged {
        within: Duration,
        #[cfg_attr(
            not(feature = "postgres"),
            expect(dead_code, reason = "only batches ask for it")
        )]
        left: Duration,
    },
    /// The same for a caller that waits for the answer.
    Extended(Duration),
    /// Without replicas, whose acknowledgement follows later.
    Alone,
    /// For the rest of the holder's lease, which the server should know already. A server that was
    /// replaced may have lost the lock, or its ttl.
    Kept,
}

/// What never changes about a store.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Facts {
    /// The manager's timeout; zero without a server.
    pub(crate) timeout: Duration,
    /// Whether callers without a wait fail at once while their server is down.
    pub(crate) fails_fast: bool,
    /// Whether no lock is ever busy.
    pub(crate) is_never_busy: bool,
    /// Whether a grant counts only when replicas have acknowledged it.
    pub(crate) is_replicated: bool,
    /// Whether waiters poll, as no server has a queue of which it hands the lock off to the first.
    pub(crate) polls: bool,
    /// Whether several servers decide together.
    pub(crate) are_several: bool,
    /// Whether locks may be forgotten while this process lives.
    pub(crate) may_forget: bool,
    /// Whether the server has to be checked while locks are held, because another one may replace
    /// it at any time.
    pub(crate) may_fail_over: bool,
}

impl Facts {
    /// How long an answer may take.
    pub(crate) fn answer_time(&self) -> Duration {
        self.timeout / CALLS_PER_TIMEOUT
    }
}

/// How a server is, or several of them together. Never down for a Redlock, where a majority is
/// enough.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ServerHealth {
    /// It grants nothing.
    pub(crate) is_down: bool,
    /// It is down, and gives no answer.
    pub(crate) is_silent: bool,
    /// The shortest recent round trip; zero while it is not known.
    pub(crate) round_trip: Duration,
}

/// A kind of store: servers that keep locks, or memory.
///
/// Whatever the kind, a lock means the same, because every kind keeps these promises. Only the
/// possible failures differ, and the default of a method is that of a store without a server.
///
/// - **A token makes every call idempotent.** A request that is repeated with its token finds the
///   lock that the first one was granted, or its place in the queue. A release that is repeated
///   does nothing. So a call without an answer is sent again, and never counted as done.
/// - **A fence is larger than every one that was granted for the key before**, also after the lock
///   has expired or the server has restarted.
/// - **A lease counts from before its request was sent.** The store counts from later on, and so
///   never grants a key to another holder while a client still counts on its lease.
/// - **A push is a hint; an answer is the truth.** A waiter that gets no push asks again within
///   seconds. A grant that arrives by a push counts only with the secret of the last request.
/// - **What was dropped can be released later.** A future may be dropped at any point. One release
///   of its token, sent after the request has arrived, then leaves nothing behind, neither a lock
///   nor a place in a queue.
/// - **A request without an answer was applied, or was not, or it is unknown which.** The store
///   says so by [`Request::set_applied`] and [`Failed`], and never guesses.
///
/// What only some kinds can do beside locks, such as keeping values or jobs, or showing the locks
/// of others, is no method here: a folder of its own above the stores asks which kind it has, as
/// [`Any`] tells, and does it over that.
pub(crate) trait Backend: Any + fmt::Debug + Send + Sync {
    /// What never changes about it.
    fn facts(&self) -> Facts;

    /// How the server of the request's keys is.
    fn health(&self, _: &Request) -> ServerHealth {
        ServerHealth::default()
    }

    /// The same locks through a connection of its own, for a thread with its own runtime.
    fn apart(&self) -> Arc<dyn Backend>;

    /// Checks that the servers answer, and that the user has the rights that locks need.
    fn ready(&self) -> StoreFuture<'_, Result<(), LockError>> {
        Box::pin(ready(Ok(())))
    }

    /// Asks for one key, or for as many as one call can take, and waits for one key if the caller
    /// waits. The future borrows nothing, so that its caller can store it. When it is dropped, the
    /// token may have been written, and may be in a queue.
    fn ask(
        self: Arc<Self>,
        request: Request,
        wait: Wait,
    ) -> StoreFuture<'static, Result<Answer, Failed>>;

    /// Removes the token, or keeps the key for the rest of the request's `min_hold`. Returns
    /// whether the lock was held; of several keys, whether all were.
    fn release<'a>(&'a self, request: &'a Request) -> StoreFuture<'a, Result<Released, LockError>>;

    /// Restarts the lock's ttl, and never shortens it. Returns whether the token still held the
    /// lock; of several keys, all of them. Never acquires the lock.
    fn renew<'a>(
        &'a self,
        request: &'a Request,
        ttl: Duration,
        how: RenewKind,
    ) -> StoreFuture<'a, Result<bool, LockError>>;

    /// The check of a fence of this key in a transaction; `None` where the locks are not in a
    /// database that has transactions.
    fn fence_check(&self, _: &LockKey, _: Fence) -> Option<FenceCheck> {
        None
    }

    /// How many of these keys, from the first one on, a single call can take.
    fn at_once(&self, keys: &[LockKey]) -> usize {
        keys.len()
    }

    /// The address of the server of the request's first key, or of all nodes of a Redlock.
    fn address(&self, _: &Request) -> Option<Box<str>> {
        None
    }

    /// The error for a setting that this kind of store has nothing for, if it has words of its own.
    #[cfg(any(feature = "defer", feature = "inspect", feature = "reuse"))]
    fn refusal(&self, _setting: &'static str, _detail: &str) -> Option<LockError> {
        None
    }

    /// Whether to log a call that failed because of the servers at WARN: not while a server is
    /// down, because that was logged.
    fn is_news(&self) -> bool {
        true
    }

    /// Sets a callback for when the server may not be the one that granted the locks any more. A
    /// Redlock never calls it, as a single node does not decide.
    fn on_change(&self, _: Box<dyn Fn() + Send + Sync>) {}

    /// Fails for what is refused without asking a server.
    fn check_ask(&self, _: &Ask) -> Result<(), LockError> {
        Ok(())
    }

    /// The waiters that are told of their grants; `None` where they poll.
    fn subscriptions(&self) -> Option<&Subscriptions> {
        None
    }

    /// Checks that the server is still the same.
    fn check(&self) -> StoreFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Closes the connections for good. A later call opens one for itself only.
    fn close(&self) {}
}
