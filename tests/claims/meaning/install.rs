//! The default manager of a process, shared by everything that runs in it.
//!
//! A test binary of its own, because an installed manager stays for the life of a process.

use std::sync::LazyLock;
use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockManager, distributed_lock};
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT};
use lockmacro_tests::{Server, eventually, is_no_runtime, on_a_plain_thread};

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let server = Server::start();
    let url = server.url();
    // On a thread and a runtime of its own, which is gone when the tests use the manager.
    let installing = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(install(&url));
    });
    installing.join().expect("installed");
    server
});

async fn install(url: &str) {
    assert!(matches!(LockManager::current(), Err(LockError::NotInstalled { .. })));
    let refused = audit(0).await.expect_err("nothing is installed");
    assert!(matches!(refused, LockError::NotInstalled { .. }), "{refused}");
    // What a program prints that ends with it.
    assert!(format!("{refused:?}").contains("call `LockManager::install`"), "{refused:?}");
    let manager = LockManager::builder().label("first").connect(url).await.expect("there");
    manager.install().expect("the first");
    let second = LockManager::isolated_memory();
    let refused = second.install();
    assert!(matches!(refused, Err(LockError::InvalidSetting { setting: "manager", .. })));
}

#[distributed_lock(key = "audit:<id>", ttl = "60s")]
async fn audit(id: u64) -> Result<u64, LockError> {
    tokio::task::yield_now().await;
    let holder = SERVER.admin().get(&format!("audit:{id}")).unwrap_or_default();
    assert!(holder.starts_with("first") && holder.contains("audit"), "{holder}");
    Ok(id)
}

#[distributed_lock(key = "count:<id>", ttl = "60s")]
fn count(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[tokio::test]
async fn the_installed_manager_locks_an_annotated_function() {
    LazyLock::force(&SERVER);
    assert_eq!(audit(1).await, Ok(1));
    assert_eq!(SERVER.admin().get("audit:1"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_thread_test_shares_the_installed_manager() {
    LazyLock::force(&SERVER);
    for _ in 0..3 {
        assert_eq!(audit(3).await, Ok(3));
        assert_eq!(count(3), Ok(3));
    }
}

#[tokio::test]
async fn a_sync_function_in_a_current_thread_test_is_refused() {
    LazyLock::force(&SERVER);
    assert!(is_no_runtime(&count(4), "spawn_blocking"));
    assert_eq!(on_a_plain_thread(|| count(4)).await, Ok(4));
}

#[test]
fn a_sync_function_works_in_a_test_without_a_runtime() {
    LazyLock::force(&SERVER);
    assert_eq!(count(5), Ok(5));
}

#[tokio::test]
async fn a_lock_without_a_manager_uses_the_installed_one() {
    LazyLock::force(&SERVER);
    let guard = Lock::new("order:6").ttl(LONG_TTL).acquire().await.expect("free");
    assert!(SERVER.admin().get("order:6").is_some());
    // The runtime of another test, which the connection is a task of, may end before this is
    // answered.
    if let Err(error) = guard.release().await {
        assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    }
    let gone = || std::future::ready(SERVER.admin().get("order:6").is_none());
    eventually("it is released", TEST_TIMEOUT, gone).await;
    assert!(LockManager::current().is_ok());
}

#[tokio::test]
async fn a_scope_goes_before_the_installed_manager() {
    LazyLock::force(&SERVER);
    let own = LockManager::isolated_memory();
    let held = own.scope(Lock::new("count:8").acquire()).await.expect("free");
    assert_eq!(SERVER.admin().get("count:8"), None);
    let busy = on_a_plain_thread(move || own.scope_blocking(|| count(8))).await;
    assert!(busy.expect_err("held").is_busy());
    assert_eq!(on_a_plain_thread(|| count(8)).await, Ok(8), "the installed one is another store");
    held.release().await.expect("still held");
}

#[tokio::test]
async fn managers_that_are_gone_leave_no_thread() {
    for _ in 0..20 {
        let own = LockManager::isolated_memory();
        let lock = Lock::new("order:7").ttl(LONG_TTL).manager(&own);
        drop(lock.acquire().await.expect("free"));
    }
    // The installed manager keeps its own.
    let gone = || std::future::ready(background_threads() <= 1);
    eventually("the threads end", Duration::from_secs(5), gone).await;
}

fn background_threads() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux");
    let names =
        threads.flatten().filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok());
    names.filter(|name| name.starts_with("lockmacro")).count()
}
