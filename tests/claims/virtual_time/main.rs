//! Locks of `memory://` under a paused clock of tokio, as users test with it (feature `test-util`).
//! No test here waits for real time.

mod blocking;
mod deferred;
mod leading;
mod leases;
mod losses;
mod waits;

use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager};
use tokio::runtime::{Builder, Runtime};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

type Locked<T> = Result<T, LockError>;

fn lock(manager: &LockManager, ttl: Duration) -> Lock {
    Lock::new("order:42").ttl(ttl).manager(manager)
}

/// Whether nobody holds the lock. Asked by a task of its own: the task that holds the lock would
/// enter it again.
async fn is_free(manager: &LockManager) -> bool {
    match tokio::spawn(lock(manager, MINUTE).acquire()).await.expect("no panic") {
        Ok(guard) => guard.release().await.is_ok(),
        Err(error) => {
            assert!(error.is_busy(), "{error}");
            false
        }
    }
}

async fn acquired(lock: Lock) -> LockGuard {
    lock.acquire().await.expect("free")
}

/// A runtime as `#[tokio::test(start_paused = true)]` makes one.
fn paused() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().expect("there is room")
}
