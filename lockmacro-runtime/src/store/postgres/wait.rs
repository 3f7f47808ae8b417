//! The requests of waiters, which join the queue.

use std::sync::Arc;

use super::error::of_call;
use super::store::Postgres;
use crate::protocol::request::Request;
use crate::store::calls::budget::Budget;
use crate::store::calls::error::CallError;
use crate::store::calls::reply::Reply;
use crate::store::calls::wait::{Queue, SentRequest};
use crate::store::waiters::{Waiter, Waiters};
use crate::value::error::LockError;
use crate::value::key::LockKey;
use crate::value::time::Instant;

impl Queue for Postgres {
    fn waiters(&self) -> &Arc<Waiters> {
        &self.pool.waiters
    }

    fn slot(&self, _: &Request) -> u16 {
        0
    }

    fn budget_while_waiting(&self, until: Instant) -> Budget {
        self.budget_until(until)
    }

    async fn ask_queued(
        &self,
        request: &Request,
        waiter: &Waiter,
        budget: Budget,
    ) -> Result<(Reply, SentRequest), CallError> {
        // Before the request: a grant may be sent as soon as the request is answered.
        self.pool.listen(budget.until).await?;
        self.ask(request, Some(waiter), budget).await
    }

    fn error(&self, error: CallError, key: &LockKey) -> LockError {
        of_call(error, key)
    }
}
