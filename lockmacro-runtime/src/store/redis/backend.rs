//! One Redis server or cluster as a kind of store.

use std::sync::Arc;
use std::time::Duration;

use super::store::Redis;
use crate::protocol::answer::{Answer, Failed, Released, StoreFuture};
use crate::protocol::request::Request;
use crate::store::backend::{Backend, RenewKind, Wait};
use crate::store::remote;
use crate::store::remote::budget::CALLS_PER_TIMEOUT;
use crate::store::subscriptions::AbandonedToken;
use crate::value::companion::slot;
use crate::value::error::LockError;
use crate::value::key::LockKey;

impl Backend for Redis {
    fn apart(&self) -> Arc<dyn Backend> {
        Arc::new(Redis::apart(self))
    }

    fn ready(&self) -> StoreFuture<'_, Result<(), LockError>> {
        Box::pin(self.connected())
    }

    fn ask(
        self: Arc<Self>,
        request: Arc<Request>,
        wait: Wait,
    ) -> StoreFuture<'static, Result<Answer, Failed>> {
        match wait {
            Wait::AtOnce(until) => Box::pin(async move { self.acquire(&request, until).await }),
            Wait::Waits(wait, shutdown) => {
                Box::pin(remote::wait::wait(self, request, wait, shutdown))
            }
        }
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

    fn is_replicated(&self) -> bool {
        self.replicated.is_some()
    }

    fn address(&self, request: &Request) -> Option<Box<str>> {
        self.server_of(&request.key)
    }

    fn answer_time(&self) -> Duration {
        self.timeout / CALLS_PER_TIMEOUT
    }

    fn round_trip(&self, key: &LockKey) -> Duration {
        self.nodes.node_of(key).map_or(Duration::ZERO, |node| node.health().round_trip.shortest())
    }

    fn may_forget(&self) -> bool {
        true
    }

    fn may_fail_over(&self) -> bool {
        self.can_fail_over
    }

    fn is_down(&self, request: &Request) -> bool {
        let mut nodes = request.keys().iter().filter_map(|key| self.nodes.node_of(key));
        nodes.any(|node| node.health().is_down())
    }

    fn is_news(&self) -> bool {
        self.monitor.is_news()
    }

    fn on_change(&self, callback: Box<dyn Fn() + Send + Sync>) {
        self.monitor.on_change(callback);
    }

    fn abandon(&self, bits: u64) -> Option<AbandonedToken> {
        Some(self.grants.subscriptions.abandon(bits))
    }

    fn alarm(&self) {
        self.grants.subscriptions.alarm_where(|_| true);
    }

    /// Notices a server that hangs or is no longer a primary.
    fn check(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.nodes.check(self.brief()))
    }

    fn close(&self) {
        self.nodes.close();
    }
}
