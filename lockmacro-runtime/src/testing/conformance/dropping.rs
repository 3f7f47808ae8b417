//! Claims about futures that are dropped: each call is dropped at its first await, its second, and
//! so on, until it ends before.

use std::pin::pin;
use std::time::Duration;

use tokio::time::sleep;

use super::awaits::{AWAITS_MAX, until_await};
use super::case::{Case, CaseResult, Fault, expect};
use crate::store::{HeldKey, LockStore};
use crate::sys::time::Instant;

/// How long a call that was dropped may still be on its way.
const ON_ITS_WAY: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn a_dropped_acquire_leaves_nothing_else<S: LockStore>(
    case: &Case<'_, S>,
) -> CaseResult {
    for waits in 0..AWAITS_MAX {
        let key = format!("{}:{waits}", case.key);
        let token = case.token();
        let client = case.client();
        let ask = case.ask(&key, &token, case.long());
        let ended = dropped_after(client.acquire(ask), waits).await;
        // The call may arrive after a release, so that is repeated, as the engine does.
        let other = case.token();
        let until = Instant::now() + ON_ITS_WAY;
        loop {
            case.release(&key, &token, Duration::ZERO).await?;
            match case.granted(&key, &other, case.long()).await {
                Ok(_) => break,
                Err(_) if Instant::now() < until => sleep(PAUSE).await,
                Err(Fault { came, .. }) => {
                    let nth = waits + 1;
                    let expected = format!(
                        "after a drop at await {nth} of `acquire` and a `release` of its token, \
                         another token is granted the key"
                    );
                    return Err(Fault::new(expected, came));
                }
            }
        }
        if ended {
            break;
        }
    }
    Ok(())
}

pub(super) async fn a_dropped_renewal_leaves_the_lock<S: LockStore>(
    case: &Case<'_, S>,
) -> CaseResult {
    for waits in 0..AWAITS_MAX {
        let key = format!("{}:{waits}", case.key);
        let token = case.token();
        let grant = case.granted(&key, &token, case.long()).await?;
        let client = case.client();
        let ended =
            dropped_after(client.renew(HeldKey::new(&key, &token), case.long()), waits).await;
        case.refused(&key, grant.sent + case.long()).await?;
        let of = format!("`renew`, after one was dropped at await {}", waits + 1);
        expect(case.renew(&key, &token, case.long()).await?, true, &of)?;
        if ended {
            break;
        }
    }
    Ok(())
}

pub(super) async fn a_dropped_release_can_be_repeated<S: LockStore>(
    case: &Case<'_, S>,
) -> CaseResult {
    for waits in 0..AWAITS_MAX {
        let key = format!("{}:{waits}", case.key);
        let token = case.token();
        case.granted(&key, &token, case.long()).await?;
        let client = case.client();
        let held = HeldKey::new(&key, &token);
        let ended = dropped_after(client.release(held, Duration::ZERO), waits).await;
        // Whether the first one was applied.
        case.release(&key, &token, Duration::ZERO).await?;
        case.is_free_soon(&key).await?;
        if ended {
            break;
        }
    }
    Ok(())
}

/// Drops the future where it waits once more after so many waits. Returns whether it ended before.
async fn dropped_after<T>(future: impl Future<Output = T>, waits: usize) -> bool {
    until_await(pin!(future), waits).await.is_some()
}
