//! Claims about renewing a key.

use tokio::time::sleep;

use super::case::{Case, Verdict, expect};
use crate::store::LockStore;
use crate::sys::time::Instant;

pub(super) async fn a_renewal_restarts_the_ttl<S: LockStore>(case: &Case<'_, S>) -> Verdict {
    let token = case.token();
    let ttl = case.short();
    case.granted(&case.key, &token, ttl).await?;
    let mut renewed = Instant::now();
    for _ in 0..2 {
        sleep(ttl / 2).await;
        renewed = Instant::now();
        expect(case.renew(&case.key, &token, ttl).await?, true, "`renew` by the holder")?;
    }
    case.refused_until(&case.key, renewed + ttl).await
}

pub(super) async fn a_renewal_never_shortens<S: LockStore>(case: &Case<'_, S>) -> Verdict {
    let token = case.token();
    let grant = case.granted(&case.key, &token, case.halves(8)).await?;
    let renewed = case.renew(&case.key, &token, case.short()).await?;
    expect(renewed, true, "`renew` by the holder")?;
    case.refused_until(&case.key, grant.sent + case.halves(8)).await
}

pub(super) async fn a_renewal_by_another_token_is_refused<S: LockStore>(
    case: &Case<'_, S>,
) -> Verdict {
    let token = case.token();
    let other = case.token();
    let grant = case.granted(&case.key, &token, case.long()).await?;
    let renewed = case.renew(&case.key, &other, case.long()).await?;
    expect(renewed, false, "`renew` by a token that does not hold the key")?;
    case.refused(&case.key, grant.sent + case.long()).await?;
    let renewed = case.renew(&case.key, &token, case.long()).await?;
    expect(renewed, true, "`renew` by the holder after that")
}

pub(super) async fn a_free_key_is_not_renewed<S: LockStore>(case: &Case<'_, S>) -> Verdict {
    let renewed = case.renew(&case.key, &case.token(), case.long()).await?;
    expect(renewed, false, "`renew` of a key that nobody holds")?;
    case.is_free_soon(&case.key).await.map(drop)
}

pub(super) async fn an_expired_key_is_not_renewed<S: LockStore>(case: &Case<'_, S>) -> Verdict {
    let token = case.token();
    let grant = case.granted(&case.key, &token, case.short()).await?;
    // Another token is granted the key, and that lease ends, too.
    let other = case.becomes_free(&case.key, grant.latest_end()).await?;
    expect(case.renew(&case.key, &token, case.long()).await?, false, "`renew` after the lease")?;
    case.becomes_free(&case.key, other.latest_end()).await?;
    let renewed = case.renew(&case.key, &token, case.long()).await?;
    expect(renewed, false, "`renew` long after the lease")
}
