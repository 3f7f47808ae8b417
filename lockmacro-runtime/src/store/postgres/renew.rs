//! Renewals: all of a process that are due about the same time are one statement.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout_at;

use super::batch::{Renewal, Renewals, Renewed};
use super::connection::Pool;
use super::store::Postgres;
use super::values::{column, millis, only, stored, values};
use crate::protocol::request::Request;
use crate::store::calls::budget::Budget;
use crate::store::calls::error::CallError;
use crate::value::error::LockError;
use crate::value::time::Instant;

/// The connection for renewals, which are for many keys at once.
const RENEWALS: usize = 1;
/// The shortest ttl of which the pause is a small part.
const GATHER_FROM: Duration = Duration::from_secs(10);

impl Postgres {
    /// Renews a lease, which may wait for others unless somebody waits for it.
    pub(super) async fn renew_all(
        &self,
        request: &Request,
        ttl: Duration,
        may_wait: bool,
    ) -> Result<bool, LockError> {
        let Renewals { prompt, gathering } = &self.renewals;
        let gathers = may_wait && request.ttl >= GATHER_FROM;
        let batch = if gathers { gathering } else { prompt };
        // Those before it may just have been sent.
        let (timeout, until) = (self.timeout, Instant::now() + 2 * batch.longest);
        let send = |key| {
            let (key, token) = (stored(key).into_owned(), request.token.expose().to_owned());
            let pool = Arc::clone(&self.pool);
            let call = move |renewals| renew(Arc::clone(&pool), renewals, timeout);
            batch.send((key, token, millis(ttl)), call)
        };
        let answers: Vec<_> = request.keys().iter().map(send).collect();
        let mut held = true;
        for answer in answers {
            let answer = timeout_at(until, answer).await.ok().and_then(Result::ok);
            let answer = answer.unwrap_or_else(|| Err(CallError::unanswered()));
            held &= answer.map_err(|error| error.into_error(&request.key))?;
        }
        Ok(held)
    }
}

/// Renews what has gathered.
async fn renew(pool: Arc<Pool>, renewals: Vec<Renewal>, timeout: Duration) -> Vec<Renewed> {
    let keys: Vec<_> = renewals.iter().map(|(key, ..)| &**key).collect();
    let tokens: Vec<_> = renewals.iter().map(|(_, token, _)| &**token).collect();
    let ttls: Vec<_> = renewals.iter().map(|(.., ttl)| *ttl).collect();
    let values = values![keys, tokens, ttls];
    let rows = pool.call(RENEWALS, "renew", values, Budget::brief(timeout)).await;
    let held = rows.and_then(only).and_then(|row| column::<Vec<bool>>(&row, 0));
    let held = |nth| held.as_ref().map_err(Clone::clone).map(|held| held.get(nth) == Some(&true));
    (0..renewals.len()).map(held).collect()
}
