//! Releasing locks.

use std::mem;
use std::sync::Arc;

use super::client::connection::Pool;
use super::client::values::{Values, column, millis, stored, values};
use super::store::Postgres;
use crate::protocol::answer::Released;
use crate::protocol::request::Request;
use crate::store::remote::budget::Budget;
use crate::store::remote::error::{RemoteError, Transient};
use crate::sys::task::spawn;
use crate::sys::time::{Instant, Moment};
use crate::value::applied::Applied;
use crate::value::error::{LockError, UnavailableReason};

impl Postgres {
    /// In a task of its own: the statement hands the locks off, and a caller that is dropped after
    /// that must not keep the pushes.
    pub(super) async fn release_all(&self, request: &Request) -> Result<Released, LockError> {
        let pool = Arc::clone(&self.pool);
        let budget = Budget::brief(self.timeout);
        let keys: Vec<_> = request.ask.keys().iter().map(|key| stored(key).into_owned()).collect();
        let token = request.token.secret.expose().to_owned();
        let keep = millis(request.token.stays_for(Moment::now()));
        let link = Pool::link_of(request.ask.key.as_str());
        let releasing = pool.releases.subscribe();
        let task = spawn(async move {
            let _releasing = releasing;
            release(&pool, link, values![keys, token, keep], budget).await
        });
        let released = task.await.unwrap_or_else(|_| Err(RemoteError::unanswered()));
        released.map_err(|error| error.into_error(&request.ask.key))
    }
}

/// Releases keys, and sends the pushes to their next holders.
async fn release(
    pool: &Arc<Pool>,
    link: usize,
    values: Values<'_>,
    mut budget: Budget,
) -> Result<Released, RemoteError> {
    if pool.is_driven_elsewhere(link) {
        // For a second call on a connection of this runtime.
        budget.until += budget.answer;
    }
    let call = || pool.call(link, "release", values, budget);
    let mut answer = call().await;
    let mut earlier = Applied::No;
    let mut replaced = false;
    // Where an answer has not come there is no time left, and the error says that it was sent. One
    // that was rolled back for another transaction is repeated, and a broken connection replaced
    // once.
    while let Err(RemoteError::Transient(Transient { reason, replace, applied, .. })) = &answer
        && Instant::now() < budget.until
        && (*reason == UnavailableReason::Other || *replace && !mem::replace(&mut replaced, true))
    {
        earlier = earlier.and(*applied);
        answer = call().await;
    }
    let row = answer?;
    // Before the end of the call, after which the process may end.
    pool.push(column(&row, 1)?, column(&row, 2)?).await;
    Ok(Released::of(column(&row, 0)?, earlier))
}
