//! Claims about granting a key.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Barrier;
use tokio::time::sleep;

use super::case::{Case, CaseResult, Fault, expect};
use crate::store::{AcquireRequest, LockStore, Outcome};
use crate::sys::task::spawn;
use crate::sys::time::Instant;

/// Callers that ask at the same moment, and for how many keys.
const CALLERS: usize = 8;
const ROUNDS: usize = 16;
/// How long a caller asks again after errors.
const RACE: Duration = Duration::from_secs(5);
/// Longest time for a refusal, which is far shorter than the lease.
const AT_ONCE: Duration = Duration::from_secs(4);

pub(super) async fn a_free_key_is_granted<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    case.granted(&case.key, &case.token(), case.long()).await.map(drop)
}

pub(super) async fn a_held_key_is_refused<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let token = case.token();
    let grant = case.granted(&case.key, &token, case.long()).await?;
    for _ in 0..3 {
        case.refused(&case.key, grant.sent + case.long()).await?;
    }
    let renewed = case.renew(&case.key, &token, case.long()).await?;
    expect(renewed, true, "`renew` by the holder, as a refusal changes nothing")
}

pub(super) async fn one_of_many_is_granted<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    for round in 0..ROUNDS {
        let start = Arc::new(Barrier::new(CALLERS));
        let callers = (0..CALLERS).map(|_| {
            let start = Arc::clone(&start);
            let client = case.client();
            let key = format!("{}:{round}", case.key);
            let token = case.token();
            let ttl = case.long();
            // On all threads of the runtime.
            spawn(async move {
                start.wait().await;
                let until = Instant::now() + RACE;
                loop {
                    match client.acquire(AcquireRequest::new(&key, &token, ttl)).await {
                        Ok(outcome) => return matches!(outcome, Outcome::Granted { .. }),
                        Err(_) if Instant::now() < until => sleep(Duration::from_millis(5)).await,
                        Err(_) => return false,
                    }
                }
            })
        });
        let granted = join_all(callers).await;
        let granted = granted.iter().filter(|granted| matches!(granted, Ok(true))).count();
        if granted != 1 {
            let expected = format!("one of {CALLERS} callers that ask at once is granted the key");
            return Err(Fault::new(expected, format!("{granted} are")));
        }
    }
    Ok(())
}

pub(super) async fn a_refusal_tells_the_truth<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let token = case.token();
    let grant = case.granted(&case.key, &token, case.long()).await?;
    let outcome = case.acquire(&case.key, &case.token(), case.short()).await?;
    let Outcome::Held { by, left } = outcome else {
        return Err(Fault::new("another token is refused", format!("{outcome:?}")));
    };
    if by.is_some_and(|by| by != token) {
        return Err(Fault::new("`by` is the holder's token, or `None`", "another text"));
    }
    let most = grant.given + Duration::from_secs(1);
    let least = case.long().saturating_sub(grant.sent.elapsed() + Duration::from_secs(1));
    if left.is_some_and(|left| left > most || left < least) {
        let expected = format!("`left` is {least:.1?} to {most:.1?}, or `None`");
        return Err(Fault::new(expected, format!("{left:?}")));
    }
    Ok(())
}

pub(super) async fn a_refusal_comes_at_once<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let grant = case.granted(&case.key, &case.token(), case.long()).await?;
    let asked = Instant::now();
    case.refused(&case.key, grant.sent + case.long()).await?;
    let took = asked.elapsed();
    if took > AT_ONCE {
        let expected = format!("a refusal within {AT_ONCE:?}");
        return Err(Fault::new(expected, format!("one after {took:.1?}")));
    }
    Ok(())
}

pub(super) async fn a_repeated_acquire_is_granted<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let token = case.token();
    for _ in 0..3 {
        case.granted(&case.key, &token, case.long()).await?;
    }
    let released = case.release(&case.key, &token, Duration::ZERO).await?;
    expect(released, true, "`release` after several grants to one token")?;
    case.is_free_soon(&case.key).await.map(drop)
}

pub(super) async fn a_repeated_acquire_restarts_the_ttl<S: LockStore>(
    case: &Case<'_, S>,
) -> CaseResult {
    let token = case.token();
    let ttl = case.short();
    case.granted(&case.key, &token, ttl).await?;
    sleep(ttl / 2).await;
    let again = case.granted(&case.key, &token, ttl).await?;
    case.refused_until(&case.key, again.sent + ttl).await
}

pub(super) async fn a_repeated_acquire_never_shortens<S: LockStore>(
    case: &Case<'_, S>,
) -> CaseResult {
    let token = case.token();
    let first = case.granted(&case.key, &token, case.halves(8)).await?;
    case.granted(&case.key, &token, case.short()).await?;
    case.refused_until(&case.key, first.sent + case.halves(8)).await
}

/// Keys that a store may take for one, or may not store as they are.
pub(super) async fn keys_are_compared_byte_by_byte<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let long = "x".repeat(1_024 - case.key.len());
    let longer = format!("{}y", &long[1..]);
    let odd = [
        "",
        ":",
        "a",
        "A",
        "a ",
        " a",
        "a/b",
        "a/../b",
        "b",
        "a\\b",
        "a%2Fb",
        "a\nb",
        "a\tb",
        "a\0b",
        "*",
        "?",
        "[a]",
        "{a}",
        "'",
        "\"",
        "''",
        "; --",
        "$1",
        "\u{e9}",
        "e\u{301}",
        "\u{1f512}",
        "\u{feff}",
        &long,
        &longer,
    ];
    let keys: BTreeSet<_> = odd.iter().map(|odd| format!("{}{odd}", case.key)).collect();
    let held: Vec<_> = keys.iter().map(|key| (key, case.token())).collect();
    for (key, token) in &held {
        case.granted(key, token, case.long()).await?;
    }
    for (key, token) in &held {
        case.refused(key, Instant::now() + case.long() / 2).await?;
        let released = case.release(key, token, Duration::ZERO).await?;
        expect(released, true, &format!("`release` of {key:?}"))?;
    }
    Ok(())
}

pub(super) async fn a_lease_lasts_for_its_ttl<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let ttl = case.short();
    let grant = case.granted(&case.key, &case.token(), ttl).await?;
    case.refused_until(&case.key, grant.sent + ttl).await
}

pub(super) async fn a_lease_ends_without_its_holder<S: LockStore>(
    case: &Case<'_, S>,
) -> CaseResult {
    let grant = case.granted(&case.key, &case.token(), case.short()).await?;
    case.becomes_free(&case.key, grant.latest_end()).await.map(drop)
}

/// A ttl that is no multiple of a larger unit than the store says.
pub(super) async fn a_ttl_is_not_rounded_down<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let unit = case.granularity();
    let ttl = case.short() + unit.max(case.usable(Duration::from_millis(450)).min(unit * 450));
    let grant = case.granted(&case.key, &case.token(), ttl).await?;
    case.refused_until(&case.key, grant.sent + ttl).await
}
