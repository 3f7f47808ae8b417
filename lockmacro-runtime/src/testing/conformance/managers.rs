//! Claims about a manager of the store.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::case::{Case, CaseResult, Fault, expect};
use crate::lock::Lock;
use crate::manager::lock_manager::LockManager;
use crate::store::LockStore;
use crate::sys::time::Instant;
use crate::value::error::LockError;

const MANAGERS: usize = 2;
const CALLERS: usize = 4;
const BODIES: usize = 4;
const WAIT: Duration = Duration::from_secs(20);
/// That of the managers: a store that is slow, on a busy machine, is judged by what it answers.
const TIMEOUT: Duration = Duration::from_secs(8);

pub(super) async fn managers_exclude_each_other<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let inside = AtomicBool::new(false);
    let bodies = AtomicUsize::new(0);
    let mut managers = Vec::new();
    for _ in 0..MANAGERS {
        managers.push(manager(case).await?);
    }
    let callers = managers.iter().flat_map(|locks| (0..CALLERS).map(move |_| locks)).map(|locks| {
        let lock = Lock::new(&case.key).ttl(case.usable(WAIT)).wait(WAIT).manager(locks);
        let inside = &inside;
        let bodies = &bodies;
        async move {
            for _ in 0..BODIES {
                let guard = lock.clone().acquire().await.map_err(failed)?;
                if inside.swap(true, Ordering::SeqCst) {
                    return Err(Fault::new("one body at a time", "two at once"));
                }
                yield_now().await;
                bodies.fetch_add(1, Ordering::SeqCst);
                inside.store(false, Ordering::SeqCst);
                guard.release().await.map_err(failed)?;
            }
            Ok(())
        }
    });
    try_join_all(callers).await?;
    for locks in managers {
        locks.shutdown(WAIT).await.map_err(failed)?;
    }
    expect(bodies.into_inner(), MANAGERS * CALLERS * BODIES, "the number of bodies")
}

pub(super) async fn a_manager_renews<S: LockStore>(case: &Case<'_, S>) -> CaseResult {
    let locks = manager(case).await?;
    // A store that is slow, on a busy machine, may be too slow for a short ttl.
    if is_renewed(case, &locks, 2).await.is_err() {
        is_renewed(case, &locks, 8).await?;
    }
    locks.shutdown(WAIT).await.map_err(failed)
}

/// Holds a key for three times its ttl of so many halves.
async fn is_renewed<S: LockStore>(
    case: &Case<'_, S>,
    locks: &LockManager,
    halves: u32,
) -> CaseResult {
    let key = format!("{}:{halves}", case.key);
    let ttl = case.halves(halves);
    let guard = Lock::new(&key).ttl(ttl).renew().manager(locks).acquire().await.map_err(failed)?;
    let until = Instant::now() + 3 * ttl;
    while Instant::now() < until {
        guard.check().map_err(failed)?;
        case.refused(&key, Instant::now() + ttl / 4).await?;
        sleep(ttl / 10).await;
    }
    guard.release().await.map_err(failed)?;
    case.is_free_soon(&key).await.map(drop)
}

pub(super) async fn a_dropped_waiter_leaves_nothing<S: LockStore>(
    case: &Case<'_, S>,
) -> CaseResult {
    let locks = manager(case).await?;
    let token = case.token();
    case.granted(&case.key, &token, case.long()).await?;
    for wait in [1, 30, 150] {
        let lock = Lock::new(&case.key).ttl(case.long()).wait(WAIT).manager(&locks);
        let waits = timeout(Duration::from_millis(wait), lock.acquire());
        if waits.await.is_ok() {
            return Err(Fault::new("a waiter waits for a key that is held", "it waited no more"));
        }
    }
    case.release(&case.key, &token, Duration::ZERO).await?;
    case.is_free_soon(&case.key).await?;
    locks.shutdown(WAIT).await.map_err(failed)
}

async fn manager<S: LockStore>(case: &Case<'_, S>) -> Result<LockManager, Fault> {
    let client = case.new_client();
    LockManager::builder().timeout(TIMEOUT).connect_store(client).await.map_err(failed)
}

fn failed(error: LockError) -> Fault {
    Fault::new("no error of the manager", error.to_string())
}
