//! Programs of two versions on one Redis server, as while a deployment replaces them one after the
//! other: what `docs/operation.md` promises of that. `postgres::upgrade` has the same for PostgreSQL.

mod client;
mod deferred;
mod exclusion;
mod order;
mod traffic;
mod values;

use lockmacro_runtime::{Lock, LockGuard, LockKey, LockManager};
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT};
use lockmacro_tests::{Admin, Server, is_fence};

use crate::client::Program;

/// A server, a manager of this version, and a program of an earlier one.
async fn two_versions() -> (Server, LockManager, Program) {
    let server = Server::start();
    let manager = manager(&server).await;
    let earlier = Program::on(&server);
    (server, manager, earlier)
}

async fn manager(server: &Server) -> LockManager {
    let patient = LockManager::builder().timeout(TEST_TIMEOUT);
    patient.connect(&server.url()).await.expect("the server is there")
}

/// A lock for this many holders at once: 1 is exclusive, and 0 has no limit.
fn lock(manager: &LockManager, key: &str, limit: u32) -> Lock {
    let lock = Lock::new(key).ttl(LONG_TTL).manager(manager);
    match limit {
        0 => lock.shared(),
        1 => lock,
        _ => lock.permits(limit),
    }
}

fn several(manager: &LockManager, keys: &[String]) -> Lock {
    let keys = keys.iter().map(|key| LockKey::from(key.as_str()));
    Lock::many(keys).ttl(LONG_TTL).manager(manager)
}

async fn free(lock: Lock) -> LockGuard {
    lock.acquire().await.expect("nobody is in the way")
}

async fn is_busy(lock: Lock) -> bool {
    match lock.acquire().await {
        Ok(guard) => guard.release().await.map(|()| false).expect("still held"),
        Err(error) => error.is_busy(),
    }
}

async fn released(guard: LockGuard) {
    guard.release().await.expect("still held");
}

/// Fails where a key would stay for ever.
fn all_keys_have_an_end(admin: &mut Admin) {
    for key in admin.keys() {
        // -2: it is gone by now.
        let left: i64 = admin.ask(&["PTTL", &key]);
        assert_ne!(left, -1, "{key} has no end");
    }
}

/// Nothing is left of any lock but its last fence.
fn nothing_is_left(server: &Server) {
    let mut admin = server.admin();
    all_keys_have_an_end(&mut admin);
    let left: Vec<_> = admin.keys().into_iter().filter(|key| !is_fence(key)).collect();
    assert_eq!(left, Vec::<String>::new());
}
