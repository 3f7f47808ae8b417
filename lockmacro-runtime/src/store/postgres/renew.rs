//! Renewals: many of a process that are due about the same time are one statement.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout_at;

use super::client::batch::{Batch, Renewal, Renewed};
use super::client::connection::{Pool, RENEWALS};
use super::client::values::{column, millis, stored, values};
use super::store::Postgres;
use crate::protocol::request::Request;
use crate::store::backend::RenewKind;
use crate::store::remote::budget::Budget;
use crate::store::remote::error::{RemoteError, Transient};
use crate::sys::time::Instant;
use crate::value::applied::Applied;
use crate::value::error::{LockError, UnavailableReason};

/// A statement takes no longer than this part of the time for its answer, so that a server that is
/// slower for a moment still answers in time.
const PART_OF_ANSWER: u32 = 4;

impl Postgres {
    /// Renews a lease. It may wait for others that are renewed with it, unless a caller waits.
    pub(super) async fn renew_all(
        &self,
        request: &Request,
        ttl: Duration,
        how: RenewKind,
    ) -> Result<bool, LockError> {
        // A confirmation is for the few seconds of a hand-off.
        let may_wait = matches!(how, RenewKind::Acknowledged { .. });
        let left =
            if let RenewKind::Acknowledged { left, .. } = how { left } else { Duration::ZERO };
        let batch = self.renewals.beside(request.ask.ttl, may_wait);
        let timeout = self.timeout;
        // Those before it may just have been sent.
        let until = Instant::now() + 2 * batch.longest;
        let send = |key| {
            let key = stored(key).into_owned();
            let token = request.token.secret.expose().to_owned();
            let pool = Arc::clone(&self.pool);
            let paced = Arc::clone(batch);
            let call = move |renewals, lane| {
                renew(Arc::clone(&pool), Arc::clone(&paced), renewals, lane, timeout)
            };
            batch.send((key, token, millis(ttl)), Instant::now() + left, call)
        };
        let answers: Vec<_> = request.ask.keys().iter().map(send).collect();
        let mut held = true;
        for answer in answers {
            let answer = timeout_at(until, answer).await.ok().and_then(Result::ok);
            let answer = answer.unwrap_or_else(|| Err(RemoteError::unanswered()));
            held &= answer.map_err(|error| error.into_error(&request.ask.key))?;
        }
        Ok(held)
    }
}

/// Renews what has gathered. Where somebody else changes the row of a key, that is waited for
/// without the other keys.
async fn renew(
    pool: Arc<Pool>,
    paced: Arc<Batch<Renewal, Renewed>>,
    renewals: Vec<Renewal>,
    lane: usize,
    timeout: Duration,
) -> Vec<Renewed> {
    let budget = Budget::brief(timeout);
    let link = match &renewals[..] {
        [(key, ..), ..] if lane > 0 => Pool::link_of(key),
        _ => RENEWALS,
    };
    let sent = Instant::now();
    let mut renewed = at_once(&pool, link, &renewals, budget).await;
    let took = sent.elapsed().saturating_sub(pool.health.round_trip.shortest());
    let allowed = budget.answer / PART_OF_ANSWER;
    // A refusal comes fast, and tells nothing of how long an answer takes.
    if took > allowed || renewed.iter().any(Result::is_ok) {
        paced.note_time(renewals.len(), took, allowed);
    }
    let mut locked: Vec<_> =
        (0..renewals.len()).filter(|nth| matches!(renewed[*nth], Ok(None))).collect();
    let key = |nth: &usize| &renewals[*nth].0;
    locked.sort_by_key(key);
    for of_key in locked.chunk_by(|one, next| key(one) == key(next)) {
        if Instant::now() < budget.until {
            let alone: Vec<_> = of_key.iter().map(|nth| renewals[*nth].clone()).collect();
            let answers = at_once(&pool, link, &alone, budget).await;
            of_key.iter().zip(answers).for_each(|(nth, answer)| renewed[*nth] = answer);
        }
    }
    let locked = || {
        let detail = "somebody else has locked the row of the key";
        RemoteError::Transient(Transient::new(UnavailableReason::Other, detail, Applied::No))
    };
    renewed.into_iter().map(|renewed| renewed?.ok_or_else(locked)).collect()
}

/// Whether each lock is held; `None` where that is not known, as its row is locked.
async fn at_once(
    pool: &Arc<Pool>,
    link: usize,
    renewals: &[Renewal],
    budget: Budget,
) -> Vec<Result<Option<bool>, RemoteError>> {
    let keys: Vec<_> = renewals.iter().map(|(key, ..)| &**key).collect();
    let tokens: Vec<_> = renewals.iter().map(|(_, token, _)| &**token).collect();
    let ttls: Vec<_> = renewals.iter().map(|(.., ttl)| *ttl).collect();
    let row = pool.call(link, "renew", values![keys, tokens, ttls], budget).await;
    let held = row.and_then(|row| column::<Vec<Option<bool>>>(&row, 0));
    let held = |nth| match &held {
        Ok(held) => Ok(held.get(nth).copied().flatten()),
        Err(error) => Err(error.clone()),
    };
    (0..renewals.len()).map(held).collect()
}
