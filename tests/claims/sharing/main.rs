//! Locks that several callers hold at the same time: shared ones, and those with permits.

mod attribute;
mod crowd;
mod entry;
mod foreign;
mod leases;
mod misuse;
mod order;
mod reentry;
mod server;
mod several;
mod together;

use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager};
use lockmacro_tests::Server;
use lockmacro_tests::times::{LONG_TTL, SOON, TEST_TIMEOUT, ms};
use tokio::time::timeout;

type Locked<T> = Result<T, LockError>;

/// A lock that is asked for once.
fn lock(manager: &LockManager, key: &str) -> Lock {
    Lock::new(key).ttl(LONG_TTL).manager(manager)
}

/// A lock that is waited for.
fn waiting(manager: &LockManager, key: &str) -> Lock {
    lock(manager, key).wait_forever()
}

async fn manager(server: &Server) -> LockManager {
    LockManager::connect(&server.url()).await.expect("the server is there")
}

async fn held(lock: Lock) -> LockGuard {
    lock.acquire().await.expect("nobody is in the way")
}

async fn is_busy(lock: Lock) -> bool {
    match lock.acquire().await {
        Ok(guard) => guard.release().await.map(|()| false).expect("still held"),
        Err(error) => error.is_busy(),
    }
}

/// Awaits a lock that must be had by a push, or by an answer.
async fn soon(lock: impl Future<Output = Locked<LockGuard>>) -> LockGuard {
    timeout(SOON, lock).await.expect("served in time").expect("served")
}

async fn released(guards: impl IntoIterator<Item = LockGuard>) {
    for guard in guards {
        guard.release().await.expect("still held");
    }
}
