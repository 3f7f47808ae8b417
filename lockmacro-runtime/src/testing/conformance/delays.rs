//! Claims about calls that are held up: each call is stopped at its first await, its second, and so
//! on. Another token gets the key meanwhile. Then the call goes on, and that token has to hold the
//! key still.
//!
//! A store that reads a key and writes it in a second step fails here for certain. In a race of tasks
//! it fails by chance only.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, join, select};
use tokio::time::sleep;

use super::awaits::{AWAITS_MAX, until_await};
use super::case::{Case, CaseResult, Fault, expect};
use crate::store::{HeldKey, LockStore, Outcome};
use crate::sys::time::Instant;

/// Longest time for which a call is held up. It may have the only connection of a pool, or a lock of
/// the store, and then nobody gets the key before it goes on. That is no fault.
const HELD_UP: Duration = Duration::from_millis(300);
const NOW: Duration = Duration::ZERO;

/// What happened to a key before it is asked for.
#[derive(Debug, Clone, Copy)]
enum Before {
    NeverUsed,
    Expired,
    Released,
}

pub(super) async fn an_acquire_that_is_held_up_harms_nobody<S: LockStore>(
    case: &Case<'_, S>,
) -> CaseResult {
    let keys =
        |before| (0..AWAITS_MAX).map(move |waits| format!("{}:{before:?}:{waits}", case.key));
    // All at once, as each lease takes its time.
    let mut end = Instant::now();
    for key in keys(Before::Expired) {
        let grant = case.granted(&key, &case.token(), case.short()).await?;
        end = end.max(grant.sent + grant.given);
    }
    for key in keys(Before::Released) {
        let token = case.token();
        case.granted(&key, &token, case.long()).await?;
        case.release(&key, &token, NOW).await?;
    }
    for before in [Before::NeverUsed, Before::Released, Before::Expired] {
        if matches!(before, Before::Expired) {
            // Some stores end a lease a little late.
            sleep(end.saturating_duration_since(Instant::now()) + HELD_UP).await;
        }
        for (waits, key) in keys(before).enumerate() {
            if acquires_around(case, &key, waits).await? {
                break;
            }
        }
    }
    Ok(())
}

/// Two tokens ask for a key, one of them while the other one's request is held up. Returns whether
/// that request has ended before it was.
async fn acquires_around<S: LockStore>(
    case: &Case<'_, S>,
    key: &str,
    waits: usize,
) -> Result<bool, Fault> {
    let late = case.token();
    let next = case.token();
    let client = case.client();
    let mut held_up = pin!(client.acquire(case.ask(key, &late, case.long())));
    if until_await(held_up.as_mut(), waits).await.is_some() {
        return Ok(true);
    }
    let asks = case.acquire(key, &next, case.long());
    let (outcome, came) = meanwhile(held_up, asks).await;
    let is_next = matches!(came?, Outcome::Granted { .. });
    let is_late = matches!(outcome, Ok(Outcome::Granted { .. }));
    let at = format!("of an `acquire` that was held up at await {}", waits + 1);
    if is_next && is_late {
        let expected = format!("one grant, {at}, and of another one");
        return Err(Fault::new(expected, "both tokens were granted the key"));
    }
    if is_next {
        let renewed = case.renew(key, &next, case.long()).await?;
        expect(renewed, true, &format!("`renew` by the holder, after the end {at}"))?;
    }
    if is_late {
        let renewed = case.renew(key, &late, case.long()).await?;
        expect(renewed, true, &format!("`renew` by the token {at}"))?;
    }
    Ok(false)
}

pub(super) async fn a_renewal_that_is_held_up_harms_nobody<S: LockStore>(
    case: &Case<'_, S>,
) -> CaseResult {
    for waits in 0..AWAITS_MAX {
        let key = format!("{}:{waits}", case.key);
        let token = case.token();
        case.granted(&key, &token, case.long()).await?;
        let client = case.client();
        let held_up = client.renew(HeldKey::new(&key, &token), case.long());
        if next_holder_around(case, &key, &token, held_up, waits, "renewal").await? {
            break;
        }
    }
    Ok(())
}

pub(super) async fn a_release_that_is_held_up_harms_nobody<S: LockStore>(
    case: &Case<'_, S>,
) -> CaseResult {
    for waits in 0..AWAITS_MAX {
        let key = format!("{}:{waits}", case.key);
        let token = case.token();
        case.granted(&key, &token, case.long()).await?;
        let client = case.client();
        let held_up = client.release(HeldKey::new(&key, &token), NOW);
        if next_holder_around(case, &key, &token, held_up, waits, "release").await? {
            break;
        }
    }
    Ok(())
}

/// The key goes from the token to another one while a call with the first one is held up. Returns
/// whether that call has ended before it was.
async fn next_holder_around<S: LockStore, T>(
    case: &Case<'_, S>,
    key: &str,
    token: &str,
    held_up: impl Future<Output = T>,
    waits: usize,
    of: &str,
) -> Result<bool, Fault> {
    let next = case.token();
    let mut held_up = pin!(held_up);
    if until_await(held_up.as_mut(), waits).await.is_some() {
        return Ok(true);
    }
    let goes_on = async {
        // Whether the call was applied before.
        case.release(key, token, NOW).await?;
        case.granted(key, &next, case.long()).await
    };
    let (_, grant) = meanwhile(held_up, goes_on).await;
    let grant = grant?;
    let by = format!(
        "`renew` by the next holder, after a {of} of the one before was held up at await {}",
        waits + 1
    );
    expect(case.renew(key, &next, case.long()).await?, true, &by)?;
    case.refused(key, grant.sent + case.long()).await?;
    Ok(false)
}

/// Lets the second future run while the first one is held up, and then both.
async fn meanwhile<A: Future, B: Future>(held_up: A, runs: B) -> (A::Output, B::Output) {
    let mut runs = pin!(runs);
    match select(runs.as_mut(), pin!(sleep(HELD_UP))).await {
        Either::Left((came, _)) => (held_up.await, came),
        Either::Right(_) => join(held_up, runs).await,
    }
}
