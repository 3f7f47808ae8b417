//! Claims about granting a key.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::case::{Case, Fault, Verdict, expect};
use crate::store::{AcquireRequest, HeldKey, LockStore, Outcome};
use crate::sys::task::spawn;
use crate::sys::time::Instant;

/// Callers that ask at the same moment, and how often each of them is granted the key.
const CALLERS: usize = 8;
const ROUNDS: usize = 4;
/// How long they try.
const RACE: Duration = Duration::from_secs(8);
/// Longest time for a refusal, which is far shorter than the lease.
const AT_ONCE: Duration = Duration::from_secs(4);

pub(super) async fn a_free_key_is_granted<S: LockStore>(case: &Case<'_, S>) -> Verdict {
    case.granted(&case.key, &case.token(), case.long()).await.map(drop)
}

pub(super) async fn a_held_key_is_refused<S: LockStore>(case: &Case<'_, S>) -> Verdict {
    let token = case.token();
    let grant = case.granted(&case.key, &token, case.long()).await?;
    for _ in 0..3 {
        case.refused(&case.key, grant.sent + case.long()).await?;
    }
    let renewed = case.renew(&case.key, &token, case.long()).await?;
    expect(renewed, true, "`renew` by the holder, as a refusal changes nothing")
}

pub(super) async fn one_of_many_is_granted<S: LockStore>(case: &Case<'_, S>) -> Verdict {
    let inside = Arc::new(AtomicBool::new(false));
    let grants = Arc::new(AtomicUsize::new(0));
    let ttl = case.long();
    let callers = (0..CALLERS).map(|_| {
        let inside = Arc::clone(&inside);
        let grants = Arc::clone(&grants);
        let client = case.client();
        let key = case.key.clone();
        let tokens: Vec<_> = (0..ROUNDS).map(|_| case.token()).collect();
        spawn(async move {
            let until = Instant::now() + RACE;
            for token in tokens {
                let ask = AcquireRequest::new(&key, &token, ttl);
                while !matches!(client.acquire(ask).await, Ok(Outcome::Granted { .. })) {
                    if Instant::now() > until {
                        return true;
                    }
                    sleep(Duration::from_millis(1)).await;
                }
                if inside.swap(true, Ordering::SeqCst) {
                    return false;
                }
                grants.fetch_add(1, Ordering::SeqCst);
                for _ in 0..8 {
                    yield_now().await;
                }
                inside.store(false, Ordering::SeqCst);
                while client.release(HeldKey::new(&key, &token), Duration::ZERO).await.is_err() {
                    sleep(Duration::from_millis(1)).await;
                }
            }
            true
        })
    });
    let alone = join_all(callers).await;
    if alone.iter().any(|alone| !matches!(alone, Ok(true))) {
        let expected = format!("one of {CALLERS} callers is granted the key at a time");
        return Err(Fault::new(expected, "two held it at once"));
    }
    let grants = grants.load(Ordering::SeqCst);
    if grants < CALLERS {
        let expected = format!("{CALLERS} grants or more in {RACE:?}");
        return Err(Fault::new(expected, grants.to_string()));
    }
    Ok(())
}

pub(super) async fn a_refusal_tells_the_truth<S: LockStore>(case: &Case<'_, S>) -> Verdict {
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

pub(super) async fn a_refusal_comes_at_once<S: LockStore>(case: &Case<'_, S>) -> Verdict {
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

pub(super) async fn a_repeated_acquire_is_granted<S: LockStore>(case: &Case<'_, S>) -> Verdict {
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
) -> Verdict {
    let token = case.token();
    let ttl = case.short();
    case.granted(&case.key, &token, ttl).await?;
    sleep(ttl / 2).await;
    let again = case.granted(&case.key, &token, ttl).await?;
    case.refused_until(&case.key, again.sent + ttl).await
}

pub(super) async fn a_repeated_acquire_never_shortens<S: LockStore>(case: &Case<'_, S>) -> Verdict {
    let token = case.token();
    let first = case.granted(&case.key, &token, case.halves(8)).await?;
    case.granted(&case.key, &token, case.short()).await?;
    case.refused_until(&case.key, first.sent + case.halves(8)).await
}

/// Keys that a store may take for one, or may not store as they are.
pub(super) async fn keys_are_compared_byte_by_byte<S: LockStore>(case: &Case<'_, S>) -> Verdict {
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

pub(super) async fn a_lease_lasts_for_its_ttl<S: LockStore>(case: &Case<'_, S>) -> Verdict {
    let ttl = case.short();
    let grant = case.granted(&case.key, &case.token(), ttl).await?;
    case.refused_until(&case.key, grant.sent + ttl).await
}

pub(super) async fn a_lease_ends_without_its_holder<S: LockStore>(case: &Case<'_, S>) -> Verdict {
    let grant = case.granted(&case.key, &case.token(), case.short()).await?;
    case.becomes_free(&case.key, grant.latest_end()).await.map(drop)
}

/// A ttl that is no multiple of a larger unit than the store says.
pub(super) async fn a_ttl_is_not_rounded_down<S: LockStore>(case: &Case<'_, S>) -> Verdict {
    let unit = case.granularity();
    let ttl = case.short() + unit.max(case.usable(Duration::from_millis(450)).min(unit * 450));
    let grant = case.granted(&case.key, &case.token(), ttl).await?;
    case.refused_until(&case.key, grant.sent + ttl).await
}
