//! Renewals: all of a process that are due together are one statement.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout_at;

use super::connection::Pool;
use super::store::{Postgres, Renewal};
use super::values::{column, millis, only, stored, values};
use crate::protocol::request::Request;
use crate::store::calls::budget::Budget;
use crate::store::calls::error::CallError;
use crate::value::error::LockError;

/// The connection for renewals, which are for many keys at once.
const RENEWALS: usize = 1;

impl Postgres {
    pub(super) async fn renew_all(
        &self,
        request: &Request,
        ttl: Duration,
    ) -> Result<bool, LockError> {
        let (timeout, until) = (self.timeout, Budget::brief(self.timeout).until);
        let send = |key| {
            let (key, token) = (stored(key).into_owned(), request.token.expose().to_owned());
            let pool = Arc::clone(&self.pool);
            let call = move |renewals| renew(Arc::clone(&pool), renewals, timeout);
            self.renewals.send((key, token, millis(ttl)), call)
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
async fn renew(
    pool: Arc<Pool>,
    renewals: Vec<Renewal>,
    timeout: Duration,
) -> Vec<Result<bool, CallError>> {
    let keys: Vec<_> = renewals.iter().map(|(key, ..)| &**key).collect();
    let tokens: Vec<_> = renewals.iter().map(|(_, token, _)| &**token).collect();
    let ttls: Vec<_> = renewals.iter().map(|(.., ttl)| *ttl).collect();
    let values = values![keys, tokens, ttls];
    let rows = pool.call(RENEWALS, "renew", values, Budget::brief(timeout)).await;
    let held = rows.and_then(only).and_then(|row| column::<Vec<bool>>(&row, 0));
    let held = |nth| held.as_ref().map_err(Clone::clone).map(|held| held.get(nth) == Some(&true));
    (0..renewals.len()).map(held).collect()
}
