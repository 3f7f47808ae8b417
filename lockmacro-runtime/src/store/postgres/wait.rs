//! The requests of waiters, which join the queue.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout_at;

use super::client::connection::Pool;
use super::client::values::{column, millis, stored, values};
use super::store::Postgres;
use crate::protocol::answer::Answer;
use crate::protocol::request::Request;
use crate::store::remote::budget::Budget;
use crate::store::remote::error::RemoteError;
use crate::store::remote::wait::{FAR_BACK, KeyQueues, SentRequest};
use crate::store::subscriptions::Subscription;
use crate::sys::time::Instant;
use crate::value::limits::WAITER_TTL;

impl KeyQueues for Postgres {
    fn subscribe(&self, request: &Request) -> Subscription {
        self.pool.subscriptions.join(0, request.token.secret.bits())
    }

    /// In one statement for all of a process. A request takes the row of its key: a thousand
    /// waiters that ask every two seconds would leave it no time for those that hand the lock on.
    async fn keep_place(&self, request: &Request) -> bool {
        let key = stored(&request.ask.key).into_owned();
        let token = request.token.secret.expose().to_owned();
        let pool = Arc::clone(&self.pool);
        let timeout = self.timeout;
        let stay =
            move |waiters: Vec<(String, String)>, _| stay(Arc::clone(&pool), waiters, timeout);
        let until = Instant::now() + 2 * self.stays.longest;
        let stays = self.stays.send((key, token), until, stay);
        matches!(timeout_at(until, stays).await, Ok(Ok(true)))
    }

    async fn ask_queued(
        &self,
        request: &Request,
        subscription: &Subscription,
        budget: Budget,
    ) -> Result<(Answer, SentRequest), RemoteError> {
        // Before the request: a grant may be sent as soon as the request is answered.
        let received = self.pool.listen(budget.until).await?;
        let (reply, sent) = self.ask(request, Some(subscription), budget).await?;
        Ok((reply, SentRequest { received, ..sent }))
    }
}

/// Keeps the places of waiters, each a key and a token; false for those that have to ask.
async fn stay(pool: Arc<Pool>, waiters: Vec<(String, String)>, timeout: Duration) -> Vec<bool> {
    let count = waiters.len();
    let (keys, tokens): (Vec<_>, Vec<_>) = waiters.into_iter().unzip();
    let behind = FAR_BACK.cast_signed();
    let waits = millis(WAITER_TTL);
    let values = values![keys, tokens, behind, waits];
    let row = pool.call(Pool::link_of(""), "stay", values, Budget::brief(timeout)).await;
    let stays = row.and_then(|row| column::<Vec<bool>>(&row, 0));
    stays.unwrap_or_else(|_| vec![false; count])
}
