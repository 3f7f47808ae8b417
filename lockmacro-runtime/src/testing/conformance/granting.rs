//! Claims about granting a key.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use tokio::sync::Barrier;
use tokio::time::sleep;

use super::case::{Case, CaseResult, Fault, TakenGrant, expect};
use crate::store::{AcquireRequest, LockStore, Outcome};
use crate::sys::task::spawn;
use crate::sys::time::Instant;

/// Callers that ask at the same moment, and for how many keys.
const CALLERS: usize = 8;
const ROUNDS: usize = 16;
/// How long a caller asks again for a key that nobody holds.
const RACE: Duration = Duration::from_secs(5);
/// Leases whose ends are watched.
const LEASES: u32 = 4;
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
        let key = format!("{}:{round}", case.key);
        race(case, &key, Instant::now() + RACE).await?;
    }
    Ok(())
}

pub(super) async fn one_of_many_is_granted_an_expired_key<S: LockStore>(
    case: &Case<'_, S>,
) -> CaseResult {
    let keys: Vec<_> = (0..ROUNDS).map(|round| format!("{}:{round}", case.key)).collect();
    let mut grants = Vec::new();
    for key in &keys {
        grants.push(case.granted(key, &case.token(), case.short()).await?);
    }
    for (key, grant) in keys.iter().zip(grants) {
        sleep((grant.sent + grant.given).saturating_duration_since(Instant::now())).await;
        race(case, key, grant.latest_end()).await?;
    }
    Ok(())
}

pub(super) async fn one_of_many_is_granted_a_released_key<S: LockStore>(
    case: &Case<'_, S>,
) -> CaseResult {
    for round in 0..ROUNDS {
        let key = format!("{}:{round}", case.key);
        let token = case.token();
        case.granted(&key, &token, case.long()).await?;
        expect(case.release(&key, &token, Duration::ZERO).await?, true, "`release` by the holder")?;
        race(case, &key, Instant::now() + RACE).await?;
    }
    Ok(())
}

/// Several callers ask for a key at the same moment, each until one of them is granted it.
async fn race<S: LockStore>(case: &Case<'_, S>, key: &str, until: Instant) -> CaseResult {
    let start = Arc::new(Barrier::new(CALLERS));
    let has_holder = Arc::new(AtomicBool::new(false));
    let callers = (0..CALLERS).map(|_| {
        let start = Arc::clone(&start);
        let has_holder = Arc::clone(&has_holder);
        let client = case.client();
        let key = key.to_owned();
        let token = case.token();
        let ttl = case.long();
        // On all threads of the runtime.
        spawn(async move {
            start.wait().await;
            loop {
                let outcome = client.acquire(AcquireRequest::new(&key, &token, ttl)).await;
                if matches!(outcome, Ok(Outcome::Granted { .. })) {
                    has_holder.store(true, Ordering::SeqCst);
                    return true;
                }
                if has_holder.load(Ordering::SeqCst) || Instant::now() >= until {
                    return false;
                }
                sleep(Duration::from_millis(5)).await;
            }
        })
    });
    let granted = join_all(callers).await;
    let granted = granted.iter().filter(|granted| matches!(granted, Ok(true))).count();
    if granted != 1 {
        let expected = format!("one of {CALLERS} callers that ask at once is granted the key");
        return Err(Fault::new(expected, format!("{granted} are")));
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
    is_true(left, grant, case.long())
}

/// A store that does not tell how long a key is held is not judged: the lease is up to a day long.
pub(super) async fn the_longest_ttl_is_granted<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let token = case.token();
    let ttl = case.longest();
    let grant = case.granted(&case.key, &token, ttl).await?;
    let outcome = case.acquire(&case.key, &case.token(), case.short()).await?;
    let renewed = case.renew(&case.key, &token, ttl).await?;
    // Whatever the verdict is, so that no key is left for a day.
    case.release(&case.key, &token, Duration::ZERO).await?;
    expect(renewed, true, "`renew` by the holder")?;
    match outcome {
        Outcome::Held { left, .. } => is_true(left, grant, ttl),
        Outcome::Granted { .. } => {
            Err(Fault::new("another token is refused", "it was granted the key"))
        }
    }
}

/// Judges how long a key is held, as it was said just after this grant.
fn is_true(left: Option<Duration>, grant: TakenGrant, ttl: Duration) -> CaseResult {
    let most = grant.given + Duration::from_secs(1);
    let least = ttl.saturating_sub(grant.sent.elapsed() + Duration::from_secs(1));
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

/// A ttl that is no multiple of a larger unit than the store says: 947 ms, if it counts in those.
pub(super) async fn a_ttl_is_not_rounded_down<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let unit = case.granularity();
    let ttl = case.short() + unit.max(case.usable(Duration::from_millis(447)).min(unit * 447));
    // One after the other, as a busy machine may miss the moment at which a lease ends too early.
    let leases = (0..LEASES).map(|nth| async move {
        sleep(case.short() / 8 * nth).await;
        let key = format!("{}:{nth}", case.key);
        let grant = case.granted(&key, &case.token(), ttl).await?;
        case.refused_until(&key, grant.sent + ttl).await
    });
    try_join_all(leases).await.map(drop)
}
