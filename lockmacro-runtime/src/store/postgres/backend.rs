//! A PostgreSQL database as a kind of store.

use std::sync::Arc;
use std::time::Duration;

use super::client::values::stored;
#[cfg(feature = "defer")]
use super::jobs::PostgresJobs;
use super::store::Postgres;
#[cfg(feature = "inspect")]
use super::store::failed;
#[cfg(feature = "defer")]
use crate::jobs::job_queue::JobQueue;
use crate::protocol::answer::{Answer, Failed, Released, StoreFuture};
use crate::protocol::request::Request;
use crate::store::backend::{Backend, RenewKind, Wait};
#[cfg(feature = "reuse")]
use crate::store::backend::{KeptText, ValueOf};
#[cfg(feature = "inspect")]
use crate::store::inspection::Inspection;
use crate::store::remote;
use crate::store::remote::budget::{Budget, CALLS_PER_TIMEOUT};
use crate::store::subscriptions::AbandonedToken;
use crate::value::error::LockError;
use crate::value::fence::{Fence, FenceCheck};
#[cfg(feature = "inspect")]
use crate::value::inspection::InspectedServer;
use crate::value::key::LockKey;

impl Backend for Postgres {
    fn apart(&self) -> Arc<dyn Backend> {
        Arc::new(Postgres::apart(self))
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
            Wait::Waits(time, shutdown) => {
                Box::pin(remote::wait::wait(self, request, time, shutdown))
            }
        }
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

    #[cfg(feature = "reuse")]
    fn kept<'a>(&'a self, of: ValueOf<'a>) -> StoreFuture<'a, Result<Option<KeptText>, LockError>> {
        Box::pin(self.kept_value(of))
    }

    #[cfg(feature = "reuse")]
    fn keep<'a>(
        &'a self,
        request: &'a Request,
        of: ValueOf<'a>,
        value: &'a str,
        time: Duration,
    ) -> StoreFuture<'a, Result<bool, LockError>> {
        Box::pin(self.keep_value(request, of, value, time))
    }

    fn fence_check(&self, key: &LockKey, fence: Fence) -> Option<FenceCheck> {
        let sql = format!("CALL {}.check_fence($1, $2)", self.pool.servers.schema);
        Some(FenceCheck { sql, key: stored(key).into_owned(), fence })
    }

    #[cfg(feature = "defer")]
    fn job_queue(self: Arc<Self>, max_size: usize) -> Arc<dyn JobQueue> {
        Arc::new(PostgresJobs::new(self, max_size))
    }

    #[cfg(feature = "inspect")]
    fn inspection(&self) -> Option<&dyn Inspection> {
        Some(self)
    }

    #[cfg(feature = "inspect")]
    fn servers<'a>(&'a self, _: Option<&'a LockKey>) -> StoreFuture<'a, Vec<InspectedServer>> {
        Box::pin(async {
            let facts = self.facts().await.map_err(failed);
            vec![InspectedServer { server: self.pool.name(), facts }]
        })
    }

    fn address(&self, _: &Request) -> Option<Box<str>> {
        Some(self.pool.servers.name.clone())
    }

    fn answer_time(&self) -> Duration {
        self.timeout / CALLS_PER_TIMEOUT
    }

    fn round_trip(&self, _: &LockKey) -> Duration {
        self.pool.health.round_trip.shortest()
    }

    fn may_forget(&self) -> bool {
        true
    }

    fn may_fail_over(&self) -> bool {
        self.pool.servers.can_fail_over()
    }

    fn is_down(&self, _: &Request) -> bool {
        self.pool.health.is_down()
    }

    fn is_news(&self) -> bool {
        self.pool.monitor.is_news()
    }

    fn on_change(&self, callback: Box<dyn Fn() + Send + Sync>) {
        self.pool.monitor.on_change(callback);
    }

    fn abandon(&self, bits: u64) -> Option<AbandonedToken> {
        Some(self.pool.subscriptions.abandon(bits))
    }

    fn alarm(&self) {
        self.pool.subscriptions.alarm_where(|_| true);
    }

    /// Notices a server that hangs, or is no longer a primary.
    fn check(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { drop(self.state(Budget::brief(self.timeout)).await) })
    }

    fn close(&self) {
        self.pool.close();
    }
}
