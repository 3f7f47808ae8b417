//! Locks that count only when replicas have acknowledged them.

mod acquiring;
mod failover;
mod held;
mod late_release;
mod leaving;
mod settings;
mod several;
mod under_load;

use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockManager, UnavailableReason};
use lockmacro_tests::times::{CONFIRM_WINDOW, FAILOVER, FAILOVER_TTL, ms};
use lockmacro_tests::{Call, Server, eventually, is_fence, queue_of};

const KEY: &str = "order:42";

type Locked<T> = Result<T, LockError>;

/// A manager that waits for this many replicas, for longer than a loaded machine needs.
async fn manager(primary: &Server, acks: u32) -> LockManager {
    patient(primary, acks, FAILOVER).await
}

async fn patient(primary: &Server, acks: u32, timeout: Duration) -> LockManager {
    // An answer on a connection that is held up takes long.
    let builder = LockManager::builder().timeout(FAILOVER_TTL).replicated(acks, timeout);
    builder.connect(&primary.url()).await.expect("the server is there")
}

async fn plain(server: &Server) -> LockManager {
    LockManager::connect(&server.url()).await.expect("the server is there")
}

fn lock(manager: &LockManager) -> Lock {
    Lock::new(KEY).ttl(FAILOVER_TTL).manager(manager)
}

/// Waits until this many callers wait for replicas.
async fn queue_reaches(primary: &Server, count: usize) {
    let mut admin = primary.admin();
    eventually(&format!("{count} wait for replicas"), FAILOVER, || {
        let info: String = admin.ask(&["INFO", "clients"]);
        let count = format!("blocked_clients:{count}\r");
        std::future::ready(info.contains(&count))
    })
    .await;
}

/// Waits until this many processes are in the queue for the key.
async fn are_queued(primary: &Server, count: usize) {
    let mut admin = primary.admin();
    eventually(&format!("{count} in the queue"), FAILOVER, || {
        std::future::ready(admin.ask::<usize>(&["ZCARD", &queue_of(KEY)]) == count)
    })
    .await;
}

/// Waits until nothing is left but what fences need.
async fn keeps_nothing(primary: &Server) {
    let mut admin = primary.admin();
    eventually("nothing is left behind", FAILOVER, || {
        std::future::ready(admin.keys().iter().all(|key| is_fence(key)))
    })
    .await;
}

fn short<T: std::fmt::Debug>(result: Result<T, LockError>) -> (u32, u32) {
    assert!(result.as_ref().is_err_and(|error| matches!(error, LockError::Unavailable { .. })));
    match result {
        Err(LockError::Unavailable {
            reason: UnavailableReason::NotAcknowledged, detail, ..
        }) => {
            let mut numbers = detail.split(' ').filter_map(|word| word.parse().ok());
            (
                numbers.next().expect("the replicas that have"),
                numbers.next().expect("and of how many"),
            )
        }
        other => panic!("not short of replicas: {other:?}"),
    }
}
