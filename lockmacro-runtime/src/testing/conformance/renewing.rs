//! Claims about renewing a key.

use tokio::time::sleep;

use super::case::{Case, CaseResult, Fault, expect};
use crate::store::LockStore;
use crate::sys::time::Instant;

pub(super) async fn a_renewal_restarts_the_ttl<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    // A store that is slow, on a busy machine, may answer after a short lease. That is no fault.
    for halves in [2, 8] {
        let key = format!("{}:{halves}", case.key);
        let token = case.token();
        let ttl = case.halves(halves);
        let mut sent = case.granted(&key, &token, ttl).await?.sent;
        let mut are_in_time = true;
        for _ in 0..2 {
            sleep(ttl / 2).await;
            let asked = Instant::now();
            let is_held = case.renew(&key, &token, ttl).await?;
            are_in_time &= is_held || Instant::now() < sent + ttl;
            if are_in_time {
                expect(is_held, true, "`renew` by the holder")?;
            }
            sent = asked;
        }
        if are_in_time {
            return case.refused_until(&key, sent + ttl).await;
        }
    }
    Err(Fault::new("`renew` in time", "an answer that took as long as the lease"))
}

pub(super) async fn a_renewal_never_shortens<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let token = case.token();
    let grant = case.granted(&case.key, &token, case.halves(8)).await?;
    let renewed = case.renew(&case.key, &token, case.short()).await?;
    expect(renewed, true, "`renew` by the holder")?;
    case.refused_until(&case.key, grant.sent + case.halves(8)).await
}

pub(super) async fn a_renewal_by_another_token_is_refused<S: LockStore>(
    case: &Case<'_, S>,
) -> CaseResult {
    let token = case.token();
    let other = case.token();
    let grant = case.granted(&case.key, &token, case.long()).await?;
    let renewed = case.renew(&case.key, &other, case.long()).await?;
    expect(renewed, false, "`renew` by a token that does not hold the key")?;
    case.refused(&case.key, grant.sent + case.long()).await?;
    let renewed = case.renew(&case.key, &token, case.long()).await?;
    expect(renewed, true, "`renew` by the holder after that")
}

pub(super) async fn a_free_key_is_not_renewed<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let renewed = case.renew(&case.key, &case.token(), case.long()).await?;
    expect(renewed, false, "`renew` of a key that nobody holds")?;
    case.is_free_soon(&case.key).await.map(drop)
}

pub(super) async fn an_expired_key_is_not_renewed<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let token = case.token();
    let grant = case.granted(&case.key, &token, case.short()).await?;
    // Another token is granted the key, and that lease ends, too.
    let other = case.becomes_free(&case.key, grant.latest_end()).await?;
    expect(case.renew(&case.key, &token, case.long()).await?, false, "`renew` after the lease")?;
    case.becomes_free(&case.key, other.latest_end()).await?;
    let renewed = case.renew(&case.key, &token, case.long()).await?;
    expect(renewed, false, "`renew` long after the lease")
}
