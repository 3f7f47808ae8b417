//! How late a job is run, by an idle worker of another connection.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockmacro_runtime::defer::{DeferredFn, Worker, argument};
use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::Server;
use tokio::time::sleep;

use crate::Failure;
use crate::measure::now;

const TTL: Duration = Duration::from_secs(600);
/// Time from one call to the next.
const PAUSE: Duration = Duration::from_millis(20);
/// Delays after which the calls are due, in turn.
const DELAYS: [u64; 5] = [500, 20, 100, 3_000, 50];

pub async fn run(server: &Server, calls: usize) -> Result<(), Failure> {
    let (locks, other) =
        (LockManager::connect(&server.url()).await?, LockManager::connect(&server.url()).await?);
    let late = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&late);
    let function = DeferredFn::new("bench", (argument("due"),), move |(due,): (u64,)| {
        let late = now().saturating_sub(due);
        noted.lock().unwrap_or_else(|dead| dead.into_inner()).push(late as f64 / 1e6);
        async { Ok::<(), LockError>(()) }
    });
    let working = tokio::spawn(Worker::new(&other).register(function.clone()).run());
    let lock = || Lock::new("bench").ttl(TTL).manager(&locks);
    let held = lock().acquire().await?;
    for delay in DELAYS.into_iter().cycle().take(calls) {
        let Err(busy) = lock().acquire().await else {
            return Err("the lock was granted twice".into());
        };
        let delay = Duration::from_millis(delay);
        let due = now() + u64::try_from(delay.as_nanos())?;
        let deferred = function.clone().delay(delay).manager(&locks).defer(busy, (due,)).await;
        let LockError::Deferred { .. } = deferred else { return Err(deferred.into()) };
        sleep(PAUSE).await;
    }
    let count = || late.lock().unwrap_or_else(|dead| dead.into_inner()).len();
    while count() < calls {
        sleep(PAUSE).await;
    }
    let mut late = late.lock().unwrap_or_else(|dead| dead.into_inner()).clone();
    late.sort_by(f64::total_cmp);
    let at = |share: f64| late[((late.len() - 1) as f64 * share) as usize];
    println!("Delay of {calls} jobs after their due times, in ms\n");
    println!("p50 {:.2}   p99 {:.2}   max {:.2}", at(0.5), at(0.99), at(1.0));
    held.release().await?;
    other.shutdown(TTL).await?;
    working.await??;
    Ok(locks.shutdown(TTL).await?)
}
