//! What a store of one's own cannot do is refused with the name of the setting and of the store.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use lockmacro_runtime::defer::JobState;
use lockmacro_runtime::store::StoreLimits;
use lockmacro_runtime::{Lock, LockError, LockKey, LockManager};
use lockmacro_tests::times::LONG_TTL;

use crate::table::Table;
use crate::{Locked, lock, manager, ms};

const SECOND: Duration = Duration::from_secs(1);

/// Asserts that the error names the setting, the store and a reason.
#[track_caller]
fn is_refused<T>(outcome: Result<T, LockError>, named: &str, reason: &str) {
    let Err(LockError::InvalidSetting { setting, detail, .. }) = outcome else {
        panic!("{named} is not refused: {:?}", outcome.err());
    };
    assert_eq!(setting, named);
    assert!(detail.contains("Table") && detail.contains(reason), "{named}: {detail}");
}

#[tokio::test]
async fn a_lock_that_the_store_cannot_keep_is_refused_at_the_call() {
    let table = Table::limited(StoreLimits::default().shortest_ttl(2 * SECOND));
    let locks = manager(&table).await;
    let one = |key: &str| Lock::new(key).ttl(LONG_TTL).manager(&locks);
    is_refused(one("order:1").shared().acquire().await, "shared", "exclusive");
    is_refused(one("order:1").permits(3).acquire().await, "permits", "exclusive");
    let several = Lock::many([LockKey::from("rates").shared(), "order:1".into()]);
    is_refused(several.manager(&locks).acquire().await, "shared", "exclusive");
    is_refused(one("order:1").fenced().acquire().await, "fence", "no fences");
    is_refused(one("order:1").ttl(SECOND).acquire().await, "ttl", "2s");
    assert_eq!(table.network().acquires.load(SeqCst), 0);
    one("order:1").acquire().await.expect("free").release().await.expect("held");
}

#[tokio::test]
async fn a_ttl_is_rounded_up_to_the_unit_of_the_store() {
    let limits = StoreLimits::default().granularity(SECOND).shortest_ttl(SECOND);
    let table = Table::limited(limits);
    let locks = manager(&table).await;
    let guard = lock(&locks, "order:1").ttl(ms(1_500)).acquire().await.expect("free");
    assert!(guard.remaining() <= ms(1_500), "{:?}", guard.remaining());
    let left = table.left("order:1");
    assert!(left > ms(1_600) && left <= 2 * SECOND, "{left:?}");
    guard.release().await.expect("held");
}

#[tokio::test]
async fn no_ttl_is_rounded_up_beyond_the_longest() {
    let limits = StoreLimits::default().granularity(SECOND).longest_ttl(ms(9_500));
    let table = Table::limited(limits);
    let locks = manager(&table).await;
    is_refused(lock(&locks, "order:1").ttl(ms(9_500)).acquire().await, "ttl", "9s");
    let guard = lock(&locks, "order:1").ttl(ms(8_500)).acquire().await.expect("free");
    assert!(table.left("order:1") <= 9 * SECOND);
    guard.release().await.expect("held");
}

#[tokio::test]
async fn limits_that_leave_no_ttl_are_refused_at_connect() {
    let limits = StoreLimits::default().shortest_ttl(2 * SECOND).longest_ttl(ms(2_500));
    LockManager::builder().connect_store(Table::limited(limits.clone())).await.expect("2 s");
    for limits in [limits.clone().longest_ttl(SECOND), limits.granularity(3 * SECOND)] {
        let connected = LockManager::builder().connect_store(Table::limited(limits)).await;
        is_refused(connected, "store", "shortest ttl of 2s");
    }
}

#[tokio::test]
async fn jobs_values_and_inspection_are_refused_by_name() {
    let locks = manager(&Table::default()).await;
    let jobs = locks.job_queue();
    let page = jobs.list(Arc::from("audit"), JobState::Waiting, 0, 9);
    is_refused(page.await, "job_queue", "jobs");
    let reuse = lock(&locks, "report").reuse(SECOND).run(async { Locked::Ok(7) });
    is_refused(reuse.await, "reuse", "keeps no values");
    is_refused(locks.inspector().locks("*", 9).await, "inspect", "lists no locks");
}

#[tokio::test]
async fn a_setting_of_the_manager_that_the_store_cannot_keep_is_refused_at_connect() {
    let limits = StoreLimits::default().shortest_ttl(2 * SECOND).longest_ttl(9 * SECOND);
    let table = Table::limited(limits);
    let builder = LockManager::builder;
    for (setting, built) in [
        ("replicated", builder().replicated(1, SECOND)),
        ("credentials", builder().credentials(async || Locked::Ok((String::new(), String::new())))),
        // The default is refused as well, because the store would not keep to it.
        ("fence_retention", builder().fence_retention(Duration::from_secs(7 * 86_400))),
        ("longest_ttl", builder().longest_ttl(SECOND)),
        ("longest_ttl", builder().longest_ttl(600 * SECOND)),
        ("node_timeout", builder().node_timeout(ms(50))),
        ("durable", builder().durable()),
        ("cacert", builder().ca_cert("/etc/ca.pem")),
        ("cert", builder().client_cert("/etc/client.pem", "/etc/client.key")),
        ("sentinel_password", builder().sentinel_login("watcher", "secret")),
        ("schema", builder().schema("locks")),
        ("install", builder().install_schema()),
        ("listen", builder().listen("db:5432")),
        ("default_ttl", builder().default_ttl(SECOND)),
        ("default_ttl", builder().default_ttl(10 * SECOND)),
    ] {
        is_refused(built.connect_store(table.clone()).await, setting, "");
    }
    let fine = builder().default_ttl(3 * SECOND).label("web-3").key_prefix("shop:");
    fine.connect_store(table).await.expect("a store can keep these");
}
