//! Renewals: all of a process that are due about the same time are one statement.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout_at;

use super::batch::{Renewal, Renewed};
use super::connection::{Pool, RENEWALS};
use super::store::Postgres;
use super::values::{column, millis, only, stored, values};
use crate::protocol::request::Request;
use crate::store::calls::budget::Budget;
use crate::store::calls::error::{CallError, Transient};
use crate::value::applied::Applied;
use crate::value::error::{LockError, Unavailability};
use crate::value::time::Instant;

impl Postgres {
    /// Renews a lease. It may wait for others that are renewed with it, unless a caller waits.
    pub(super) async fn renew_all(
        &self,
        request: &Request,
        ttl: Duration,
        may_wait: bool,
    ) -> Result<bool, LockError> {
        let batch = self.renewals.beside(request.ttl, may_wait);
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

/// Renews what has gathered. Where somebody else changes the row of a key, that is waited for
/// without the others.
async fn renew(pool: Arc<Pool>, renewals: Vec<Renewal>, timeout: Duration) -> Vec<Renewed> {
    let budget = Budget::brief(timeout);
    let mut renewed = at_once(&pool, &renewals, budget).await;
    for (renewal, renewed) in renewals.iter().zip(&mut renewed) {
        if matches!(renewed, Ok(None)) && Instant::now() < budget.until {
            let alone = at_once(&pool, slice::from_ref(renewal), budget).await.pop();
            *renewed = alone.unwrap_or(Ok(None));
        }
    }
    let locked = || {
        let detail = "somebody else has locked the row of the key";
        CallError::Transient(Transient::new(Unavailability::Other, detail, Applied::No))
    };
    renewed.into_iter().map(|renewed| renewed?.ok_or_else(locked)).collect()
}

/// Whether each lock is held; `None` where that is not known, as its row is locked.
async fn at_once(
    pool: &Arc<Pool>,
    renewals: &[Renewal],
    budget: Budget,
) -> Vec<Result<Option<bool>, CallError>> {
    let keys: Vec<_> = renewals.iter().map(|(key, ..)| &**key).collect();
    let tokens: Vec<_> = renewals.iter().map(|(_, token, _)| &**token).collect();
    let ttls: Vec<_> = renewals.iter().map(|(.., ttl)| *ttl).collect();
    let rows = pool.call(RENEWALS, "renew", values![keys, tokens, ttls], budget).await;
    let held = rows.and_then(only).and_then(|row| column::<Vec<Option<bool>>>(&row, 0));
    let held = |nth| match &held {
        Ok(held) => Ok(held.get(nth).copied().flatten()),
        Err(error) => Err(error.clone()),
    };
    (0..renewals.len()).map(held).collect()
}
