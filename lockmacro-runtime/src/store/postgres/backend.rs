//! A PostgreSQL database as a kind of store.

use std::sync::Arc;
use std::time::Duration;

use super::client::values::stored;
use super::store::Postgres;
use crate::protocol::answer::{Answer, Failed, Released, StoreFuture};
use crate::protocol::request::Request;
use crate::store::backend::{Backend, Facts, RenewKind, ServerHealth, Wait};
use crate::store::remote;
use crate::store::remote::budget::Budget;
use crate::store::remote::server::{Asked, RemoteStore};
use crate::store::subscriptions::Subscriptions;
use crate::value::applied::Applied;
use crate::value::error::LockError;
use crate::value::fence::{Fence, FenceCheck};
use crate::value::key::LockKey;

impl Backend for Postgres {
    fn facts(&self) -> Facts {
        Facts {
            timeout: self.timeout,
            fails_fast: self.fails_fast,
            may_forget: true,
            may_fail_over: self.pool.servers.can_fail_over(),
            ..Facts::default()
        }
    }

    fn health(&self, _: &Request) -> ServerHealth {
        self.pool.health.now()
    }

    fn apart(&self) -> Arc<dyn Backend> {
        Arc::new(Postgres::apart(self))
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
        Box::pin(self.release_all(request))
    }

    fn renew<'a>(
        &'a self,
        request: &'a Request,
        ttl: Duration,
        how: RenewKind,
    ) -> StoreFuture<'a, Result<bool, LockError>> {
        Box::pin(self.renew_all(request, ttl, how))
    }

    fn fence_check(&self, key: &LockKey, fence: Fence) -> Option<FenceCheck> {
        let sql = format!("CALL {}.check_fence($1, $2)", self.pool.servers.schema);
        Some(FenceCheck { sql, key: stored(key).into_owned(), fence })
    }

    fn address(&self, _: &Request) -> Option<Box<str>> {
        Some(self.pool.servers.name.clone())
    }

    fn is_news(&self) -> bool {
        self.pool.monitor.is_news()
    }

    fn on_change(&self, callback: Box<dyn Fn() + Send + Sync>) {
        self.pool.monitor.on_change(callback);
    }

    fn subscriptions(&self) -> Option<&Subscriptions> {
        Some(&self.pool.subscriptions)
    }

    /// Notices a server that hangs, or is no longer a primary.
    fn check(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { drop(self.state(Budget::brief(self.timeout)).await) })
    }

    fn close(&self) {
        self.pool.close();
    }
}

impl RemoteStore for Postgres {
    async fn ask_once(&self, request: &Request, budget: Budget, _: Applied) -> Asked {
        self.ask(request, None, budget).await.map(|(answer, _)| answer)
    }
}
