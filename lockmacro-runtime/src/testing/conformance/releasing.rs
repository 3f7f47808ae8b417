//! Claims about releasing a key.

use std::time::Duration;

use super::case::{Case, CaseResult, expect};
use crate::store::{HeldKey, LockStore};
use crate::sys::time::Instant;

const NOW: Duration = Duration::ZERO;

pub(super) async fn a_released_key_is_free<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    for _ in 0..3 {
        let token = case.token();
        case.granted(&case.key, &token, case.long()).await?;
        expect(case.release(&case.key, &token, NOW).await?, true, "`release` by the holder")?;
    }
    case.granted(&case.key, &case.token(), case.long()).await.map(drop)
}

pub(super) async fn a_release_by_another_token_is_refused<S: LockStore>(
    case: &Case<'_, S>,
) -> CaseResult {
    let token = case.token();
    let grant = case.granted(&case.key, &token, case.long()).await?;
    for keep in [NOW, case.short()] {
        let released = case.release(&case.key, &case.token(), keep).await?;
        expect(released, false, "`release` by a token that does not hold the key")?;
    }
    case.refused(&case.key, grant.sent + case.long()).await?;
    let renewed = case.renew(&case.key, &token, case.long()).await?;
    expect(renewed, true, "`renew` by the holder after that")
}

pub(super) async fn a_repeated_release_frees_nobody_else<S: LockStore>(
    case: &Case<'_, S>,
) -> CaseResult {
    let first = case.token();
    let second = case.token();
    case.granted(&case.key, &first, case.long()).await?;
    expect(case.release(&case.key, &first, NOW).await?, true, "`release` by the holder")?;
    expect(case.release(&case.key, &first, NOW).await?, false, "the second `release`")?;
    let grant = case.granted(&case.key, &second, case.long()).await?;
    let released = case.release(&case.key, &first, NOW).await?;
    expect(released, false, "a `release` while another token holds the key")?;
    case.refused(&case.key, grant.sent + case.long()).await?;
    expect(case.release(&case.key, &second, NOW).await?, true, "`release` by the next holder")
}

pub(super) async fn an_expired_key_is_not_released<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let token = case.token();
    let grant = case.granted(&case.key, &token, case.short()).await?;
    let other = case.becomes_free(&case.key, grant.latest_end()).await?;
    case.becomes_free(&case.key, other.latest_end()).await?;
    expect(case.release(&case.key, &token, NOW).await?, false, "`release` after the lease")
}

pub(super) async fn a_released_key_is_not_renewed<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let token = case.token();
    case.granted(&case.key, &token, case.long()).await?;
    expect(case.release(&case.key, &token, NOW).await?, true, "`release` by the holder")?;
    let renewed = case.renew(&case.key, &token, case.long()).await?;
    expect(renewed, false, "`renew` after the release")?;
    case.is_free_soon(&case.key).await.map(drop)
}

pub(super) async fn a_kept_key_is_held_by_nobody<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let token = case.token();
    case.granted(&case.key, &token, case.long()).await?;
    let kept = Instant::now();
    let keep = case.halves(4);
    expect(case.release(&case.key, &token, keep).await?, true, "`release` by the holder")?;
    case.refused(&case.key, kept + keep).await?;
    // What is late for the former holder.
    let renewed = case.renew(&case.key, &token, case.long()).await?;
    expect(renewed, false, "`renew` of a key that is kept after its release")?;
    let released = case.release(&case.key, &token, NOW).await?;
    expect(released, false, "a second `release` of a key that is kept")?;
    case.refused_until(&case.key, kept + keep).await
}

/// Its lease would be much longer.
pub(super) async fn a_kept_key_ends<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let token = case.token();
    let grant = case.granted(&case.key, &token, case.long()).await?;
    let keep = case.short();
    expect(case.release(&case.key, &token, keep).await?, true, "`release` by the holder")?;
    // A store that raises a ttl may raise this one.
    let most = keep.max(grant.given.saturating_sub(case.long()) + keep) * 2;
    case.becomes_free(&case.key, Instant::now() + most + Duration::from_secs(5)).await.map(drop)
}

pub(super) async fn a_closed_store_still_releases<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let client = case.new_client();
    let token = case.token();
    case.granted(&case.key, &token, case.long()).await?;
    client.close();
    client.close();
    let held = HeldKey::new(&case.key, &token);
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until && client.release(held, NOW).await.is_err() {}
    case.is_free_soon(&case.key).await.map(drop)
}
