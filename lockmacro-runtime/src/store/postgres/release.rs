//! Releasing locks, and renewing them.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout_at;
use tokio_postgres::types::Type;

use super::connection::Pool;
use super::error::{of_call, unexpected};
use super::renew::{Renewal, renew};
use super::statements::Statements;
use super::store::Postgres;
use super::values::{Values, column, millis, stored};
use crate::protocol::answer::Released;
use crate::protocol::request::Request;
use crate::store::calls::budget::Budget;
use crate::store::calls::error::{CallError, Transient};
use crate::value::applied::Applied;
use crate::value::error::{LockError, Unavailability};
use crate::value::task::spawn;
use crate::value::time::Instant;

impl Postgres {
    /// In a task of its own: the statement hands the locks off, and a caller that is dropped after
    /// that must not keep the pushes.
    pub(super) async fn release_all(&self, request: &Request) -> Result<Released, LockError> {
        let (pool, statements) = (Arc::clone(&self.pool), Arc::clone(&self.statements));
        let keys = request.keys().iter().map(|key| stored(key).into_owned()).collect();
        let (token, keep) = (request.token.expose().to_owned(), millis(request.keep()));
        let link = Pool::link_of(request.key.as_str());
        let (releasing, brief) = (pool.releases.begin(), self.brief());
        let task = spawn(async move {
            let _releasing = releasing;
            release(pool, statements, link, (keys, token, keep), brief).await
        });
        let released = task.await.unwrap_or_else(|_| Err(CallError::unanswered()));
        released.map_err(|error| of_call(error, &request.key))
    }

    pub(super) async fn renew_all(
        &self,
        request: &Request,
        ttl: Duration,
    ) -> Result<bool, LockError> {
        let brief = self.brief();
        let answers: Vec<_> = request
            .keys()
            .iter()
            .map(|key| {
                let (key, token) = (stored(key).into_owned(), request.token.expose().to_owned());
                let (pool, statements) = (Arc::clone(&self.pool), Arc::clone(&self.statements));
                self.renewals.send(Renewal { key, token, ttl: millis(ttl) }, move |renewals| {
                    renew(Arc::clone(&pool), Arc::clone(&statements), renewals, brief.answer)
                })
            })
            .collect();
        let mut held = true;
        for answer in answers {
            let answer = timeout_at(brief.until, answer).await.ok().and_then(Result::ok);
            let answer = answer.unwrap_or_else(|| Err(CallError::unanswered()));
            held &= answer.map_err(|error| of_call(error, &request.key))?;
        }
        Ok(held)
    }
}

/// Releases keys of a token, or keeps them so long, and sends the pushes to their next holders.
async fn release(
    pool: Arc<Pool>,
    statements: Arc<Statements>,
    link: usize,
    (keys, token, keep): (Vec<String>, String, i64),
    budget: Budget,
) -> Result<Released, CallError> {
    let values: Values<'_> =
        &[(&keys, Type::TEXT_ARRAY), (&token, Type::TEXT), (&keep, Type::INT8)];
    let mut rows = pool.call(link, &statements.release, values, budget).await;
    let (mut earlier, mut replaced) = (Applied::No, false);
    // Where an answer has not come there is no time left, and the error says that it was sent. One
    // that was rolled back for another transaction is repeated, and a lost connection replaced once.
    while let Err(CallError::Transient(Transient { reason, replace, applied, .. })) = &rows
        && Instant::now() < budget.until
        && (*reason == Unavailability::Other || *replace && !mem::replace(&mut replaced, true))
    {
        earlier = earlier.and(*applied);
        rows = pool.call(link, &statements.release, values, budget).await;
    }
    let rows = rows?;
    let row = rows.first().ok_or_else(unexpected)?;
    // Before the end of the call, after which the process may end.
    pool.push(column(row, 1)?, column(row, 2)?).await;
    Ok(match column(row, 0)? {
        true => Released::Held,
        // An earlier call may have released it.
        false if earlier.may_be() => Released::Unconfirmed,
        false => Released::NotHeld,
    })
}
