//! One Redis server or cluster as a kind of store.

use std::sync::Arc;
use std::time::Duration;

use super::store::Redis;
use crate::protocol::answer::{Answer, Failed, Released, StoreFuture};
use crate::protocol::request::Request;
use crate::store::backend::{Backend, Facts, RenewKind, ServerHealth, Wait};
use crate::store::remote;
use crate::store::remote::budget::Budget;
use crate::store::remote::server::{Asked, RemoteStore};
use crate::store::subscriptions::Subscriptions;
use crate::sys::time::Instant;
use crate::value::applied::Applied;
use crate::value::companion::slot;
use crate::value::error::LockError;
use crate::value::key::LockKey;

/// Most requests that pass dead waiters. It is enough for a full queue: each request passes 128
/// of them, see `queue.lua`.
const PASSES_MAX: usize = 128;

impl Backend for Redis {
    fn facts(&self) -> Facts {
        Facts {
            timeout: self.timeout,
            fails_fast: self.fails_fast,
            is_replicated: self.replicated.is_some(),
            may_forget: true,
            may_fail_over: self.can_fail_over,
            ..Facts::default()
        }
    }

    fn health(&self, request: &Request) -> ServerHealth {
        let nodes = request.ask.keys().iter().filter_map(|key| self.nodes.node_of(key));
        let all = nodes.map(|node| node.health().now()).reduce(|all, one| ServerHealth {
            is_down: all.is_down || one.is_down,
            is_silent: all.is_silent || one.is_silent,
            ..all
        });
        all.unwrap_or_default()
    }

    fn apart(&self) -> Arc<dyn Backend> {
        Arc::new(Redis::apart(self))
    }

    fn ready(&self) -> StoreFuture<'_, Result<(), LockError>> {
        Box::pin(self.connected())
    }

    fn ask(
        self: Arc<Self>,
        request: Request,
        wait: Wait,
    ) -> StoreFuture<'static, Result<Answer, Failed>> {
        remote::wait::ask(self, request, wait)
    }

    fn release<'a>(&'a self, request: &'a Request) -> StoreFuture<'a, Result<Released, LockError>> {
        Box::pin(Redis::release(self, request))
    }

    fn renew<'a>(
        &'a self,
        request: &'a Request,
        ttl: Duration,
        how: RenewKind,
    ) -> StoreFuture<'a, Result<bool, LockError>> {
        match how {
            RenewKind::Acknowledged { within, .. } | RenewKind::Extended(within) => {
                self.renew_acknowledged(request, ttl, within)
            }
            RenewKind::Alone => Redis::renew(self, request, ttl, true),
            RenewKind::Kept => Redis::renew(self, request, ttl, false),
        }
    }

    /// In a cluster, those in the slot of the first one.
    fn at_once(&self, keys: &[LockKey]) -> usize {
        if !self.has_slots() {
            return keys.len();
        }
        let are_in_one = |one: &LockKey, next: &LockKey| slot(one.as_str()) == slot(next.as_str());
        keys.chunk_by(are_in_one).next().map_or(0, <[_]>::len)
    }

    fn address(&self, request: &Request) -> Option<Box<str>> {
        self.server_of(&request.ask.key)
    }

    fn is_news(&self) -> bool {
        self.monitor.is_news()
    }

    fn on_change(&self, callback: Box<dyn Fn() + Send + Sync>) {
        self.monitor.on_change(callback);
    }

    fn subscriptions(&self) -> Option<&Subscriptions> {
        Some(&self.grants.subscriptions)
    }

    /// Notices a server that hangs or is no longer a primary.
    fn check(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.nodes.check(self.brief()))
    }

    fn close(&self) {
        self.nodes.close();
    }
}

impl RemoteStore for Redis {
    async fn ask_once(&self, request: &Request, budget: Budget, earlier: Applied) -> Asked {
        let mut passes = PASSES_MAX;
        loop {
            // A plain SET would not recognize its own token from an earlier try.
            match self.ask(request, !earlier.may_be(), budget).await? {
                // Each request removes waiters that have died, and the lock may be free behind
                // them.
                Answer::Contended(contention)
                    if contention.is_of_nobody() && passes > 0 && Instant::now() < budget.until =>
                {
                    passes -= 1;
                }
                answer => return Ok(answer),
            }
        }
    }

    async fn is_back(&self, request: &Request, probe: Budget) -> Result<bool, LockError> {
        self.refuse_down(request, probe.until).await.map(|()| true)
    }
}
