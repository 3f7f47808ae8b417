//! Claims about fences, for a store that has some.

use std::time::Duration;

use super::case::{Case, CaseResult, Fault, TakenGrant};
use crate::store::LockStore;

const GRANTS: usize = 6;

pub(super) async fn every_fenced_grant_has_a_fence<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let grant = case.granted(&case.key, &case.token(), case.long()).await?;
    fence(grant).map(drop)
}

pub(super) async fn fences_grow<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    // One client, so that nothing else is judged.
    let client = case.new_client();
    let mut last = None;
    for _ in 0..GRANTS {
        let token = case.token();
        last = Some(larger(last, case.granted_by(&client, &token).await?)?);
        case.release(&case.key, &token, Duration::ZERO).await?;
    }
    Ok(())
}

pub(super) async fn fences_grow_between_clients<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let mut last = None;
    for _ in 0..GRANTS {
        let token = case.token();
        // A new client, as after a restart, and one that was there before.
        let client = case.new_client();
        last = Some(larger(last, case.granted_by(&client, &token).await?)?);
        case.release(&case.key, &token, Duration::ZERO).await?;
        let token = case.token();
        last = Some(larger(last, case.granted(&case.key, &token, case.long()).await?)?);
        case.release(&case.key, &token, Duration::ZERO).await?;
    }
    Ok(())
}

pub(super) async fn fences_grow_over_expiry<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let first = case.granted(&case.key, &case.token(), case.short()).await?;
    let last = larger(None, first)?;
    let next = case.becomes_free(&case.key, first.latest_end()).await?;
    larger(Some(last), next).map(drop)
}

pub(super) async fn a_repeated_acquire_has_no_smaller_fence<S: LockStore>(
    case: &Case<'_, S>,
) -> CaseResult {
    let token = case.token();
    let first = fence(case.granted(&case.key, &token, case.long()).await?)?;
    let again = fence(case.granted(&case.key, &token, case.long()).await?)?;
    if again < first {
        return Err(Fault::new(format!("{first} or more"), again.to_string()));
    }
    case.release(&case.key, &token, Duration::ZERO).await?;
    let next = case.granted(&case.key, &case.token(), case.long()).await?;
    larger(Some(again), next).map(drop)
}

/// The fence of a grant.
fn fence(grant: TakenGrant) -> Result<u64, Fault> {
    let most = i64::MAX.cast_unsigned();
    grant
        .fence
        .filter(|fence| *fence <= most)
        .ok_or_else(|| Fault::new("a fence of at most 2^63 - 1", format!("{:?}", grant.fence)))
}

/// The fence of a grant, which has to be larger than the last one.
fn larger(last: Option<u64>, grant: TakenGrant) -> Result<u64, Fault> {
    let fence = fence(grant)?;
    if last.is_some_and(|last| fence <= last) {
        let expected = format!("a fence larger than {}", last.unwrap_or_default());
        return Err(Fault::new(expected, fence.to_string()));
    }
    Ok(fence)
}
