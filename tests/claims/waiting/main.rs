//! Waiting, claim by claim: on `memory://` and on a Redis server where both can have it,
//! and what only a server can do to a line.

mod access;
mod crowds;
mod faults;
mod fleet;
mod foreign;
mod forged;
mod full;
mod holders;
mod late;
mod leaving;
mod local_hand_off;
mod order;
mod outcomes;
mod replicas;
mod rivals;
mod runtimes;
mod shutdown;
mod strangers;
mod threads;
mod traffic;

use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager};
use lockmacro_tests::queue::Queue;
use lockmacro_tests::times::{CONFIRM_WINDOW, LONG_TTL, POLLED, PUSHED, ms};
use lockmacro_tests::{Admin, Backend, Server, is_fence};
use tokio::task::JoinSet;

const KEY: &str = "order:42";

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

/// A lock that is held, and who contends for it.
struct Held {
    /// The holder's manager.
    ours: LockManager,
    /// That of another process.
    theirs: LockManager,
    key: String,
    queue: Queue,
    guard: LockGuard,
}

impl Held {
    async fn on(backend: &Backend) -> Held {
        let (ours, theirs, key) = backend.two_managers(KEY).await;
        let guard = lock(&ours, &key).acquire().await.expect("free");
        Held { ours, theirs, queue: Queue::of(backend, &key), key, guard }
    }

    async fn at(server: &Server) -> Held {
        let (ours, theirs) = (manager(server).await, manager(server).await);
        let guard = lock(&ours, KEY).acquire().await.expect("free");
        Held { ours, theirs, queue: Queue::at(server, KEY), key: KEY.to_owned(), guard }
    }
}

/// Returns the output of `work` within a time, in which the delays of a loaded machine do not
/// count. On a machine that is late all the time this may be later than a tick, and does not
/// distinguish a push from a tick.
async fn timeout_here<F: Future>(within: Duration, work: F) -> Option<F::Output> {
    const BEAT: Duration = Duration::from_millis(20);
    let mut beats = JoinSet::new();
    beats.spawn(async move {
        for _ in 0..within.div_duration_f64(BEAT).ceil() as u32 {
            tokio::time::sleep(BEAT).await;
        }
    });
    // In a task of its own, because the work must not be polled at each beat.
    tokio::select! {
        biased;
        done = work => Some(done),
        _ = beats.join_next() => None,
    }
}

/// Awaits a grant that must come within `time`, and releases the lock.
async fn served(within: Duration, grant: impl Future<Output = Locked<LockGuard>>) {
    let guard = timeout_here(within, grant).await.expect("served in time").expect("served");
    assert!(guard.is_held());
    guard.release().await.expect("still held");
}

/// Releases a lock, which the next waiter must get by a push.
async fn handed_off(guard: LockGuard, next: impl Future<Output = Locked<LockGuard>>) {
    guard.release().await.expect("still held");
    served(PUSHED, next).await;
}

/// Awaits bodies that must all be served.
async fn all_served(bodies: JoinSet<Locked<()>>) {
    bodies.join_all().await.into_iter().for_each(|body| body.expect("served"));
}

/// How often scripts were called since the last `forget_calls`.
fn requests(admin: &mut Admin) -> u64 {
    admin.count(&["evalsha"])
}

/// Waits until the server keeps nothing but fences.
async fn keeps_only_fences(server: &Server, within: Duration) {
    let mut admin = server.admin();
    let mut others = || {
        let mut keys = admin.keys();
        keys.retain(|key| !is_fence(key));
        keys
    };
    let start = std::time::Instant::now();
    while start.elapsed() < within && !others().is_empty() {
        tokio::time::sleep(ms(3)).await;
    }
    assert_eq!(others(), Vec::<String>::new(), "left behind");
}
