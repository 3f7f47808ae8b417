//! The requests of waiters, which join the queue.

use std::sync::Arc;
use std::time::Duration;

use super::store::Postgres;
use crate::protocol::request::Request;
use crate::store::calls::budget::Budget;
use crate::store::calls::error::CallError;
use crate::store::calls::reply::Reply;
use crate::store::calls::wait::{Queue, SentRequest};
use crate::store::waiters::{Waiter, Waiters};

impl Queue for Postgres {
    fn waiters(&self) -> &Arc<Waiters> {
        &self.pool.waiters
    }

    fn slot(&self, _: &Request) -> u16 {
        0
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    async fn ask_queued(
        &self,
        request: &Request,
        waiter: &Waiter,
        budget: Budget,
    ) -> Result<(Reply, SentRequest), CallError> {
        // Before the request: a grant may be sent as soon as the request is answered.
        let received = self.pool.listen(budget.until).await?;
        let (reply, sent) = self.ask(request, Some(waiter), budget).await?;
        Ok((reply, SentRequest { received, ..sent }))
    }
}
