//! Transactions that a late writer cannot commit, with a real PostgreSQL server.

#[path = "../recipes/fenced_transaction.rs"]
mod recipe;

use std::process::Command;
use std::time::Duration;

use futures::future::join_all;
use lockmacro_runtime::fence::FenceCheck;
use lockmacro_runtime::{Fence, Lock, LockGuard, LockManager, OnLost};
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT};
use lockmacro_tests::{Postgres, is_in_time, is_not_late};
use recipe::{TABLE, grant, is_late, sell};
use tokio_postgres::{Client, Transaction};

/// In a transaction of its own.
async fn check(db: &Client, check: &FenceCheck) -> bool {
    is_in_time(db, check.sql(), check.key(), check.fence()).await
}

/// As the first statement of this one.
async fn begins(write: &Transaction<'_>, check: &FenceCheck) -> bool {
    is_not_late(write.execute(check.sql(), &[&check.key(), &check.fence()]).await)
}

async fn is_refused(db: &mut Client, sold: i64, check: &FenceCheck) -> bool {
    sell(db, sold, check).await.is_err_and(|error| is_late(&error))
}

fn of(guard: &LockGuard) -> FenceCheck {
    guard.fence_check().expect("it has a fence")
}

async fn locks(server: &Postgres) -> LockManager {
    LockManager::builder().timeout(LONG_TTL).connect(&server.url()).await.expect("it is there")
}

#[tokio::test]
async fn a_late_writer_is_refused_before_the_next_holder_has_written() {
    let server = Postgres::start().await;
    let (mut db, locks) = (server.connect().await, locks(&server).await);
    db.batch_execute(TABLE).await.expect("made");
    let paused = grant(&locks).await.expect("free");
    sell(&mut db, 1, &paused).await.expect("nobody else has it");
    let next = grant(&locks).await.expect("free");
    assert!(is_refused(&mut db, 50, &paused).await);
    sell(&mut db, 5, &next).await.expect("in time");
    let row = db.query_one("SELECT amount FROM stock", &[]).await.expect("a row");
    assert_eq!(row.get::<_, i64>(0), 94);
}

/// Also a holder that wants no fence, and one that shares the lock.
#[tokio::test]
async fn a_late_writer_is_refused_whatever_the_next_holder_wants() {
    let server = Postgres::start().await;
    let (db, locks) = (server.connect().await, locks(&server).await);
    let lock = || Lock::new("stock:7").manager(&locks);
    for next in [lock(), lock().shared()] {
        let late = grant(&locks).await.expect("free");
        assert!(check(&db, &late).await);
        next.acquire().await.expect("free").release().await.expect("held");
        assert!(!check(&db, &late).await);
    }
}

#[tokio::test]
async fn nobody_is_granted_the_lock_until_a_checked_transaction_ends() {
    let server = Postgres::start().await;
    let (mut db, locks, theirs) =
        (server.connect().await, locks(&server).await, locks(&server).await);
    let lock = |of| Lock::new("stock:7").manager(of);
    let guard = lock(&locks).fenced().acquire().await.expect("free");
    let write = db.transaction().await.expect("begun");
    assert!(begins(&write, &of(&guard)).await);
    // A release does not wait for the transaction.
    guard.release().await.expect("held");
    let mut waiter = Box::pin(lock(&theirs).wait(LONG_TTL).acquire());
    let busy = lock(&locks).acquire().await.expect_err("the transaction is open");
    assert!(busy.is_busy(), "{busy}");
    tokio::time::timeout(Duration::from_millis(300), &mut waiter).await.expect_err("it is open");
    write.commit().await.expect("in time");
    let guard = tokio::time::timeout(TEST_TIMEOUT, waiter).await.expect("in time").expect("served");
    guard.release().await.expect("held");
}

/// All of them hold the lock, also those of one process. Their guards have no check, and the
/// statement is the same for all.
#[tokio::test]
async fn of_holders_that_share_the_lock_only_the_last_may_write() {
    let server = Postgres::start().await;
    let (db, ours, theirs) = (server.connect().await, locks(&server).await, locks(&server).await);
    let shared = |of| Lock::new("stock:7").shared().manager(of);
    let exclusive = grant(&ours).await.expect("free");
    let check = async |db: &Client, fence: Fence| {
        is_in_time(db, exclusive.sql(), exclusive.key(), fence.into()).await
    };
    let fence = |guard: &LockGuard| guard.fence().expect("it is fenced");
    let first = shared(&ours).fenced().acquire().await.expect("free");
    let early = fence(&first);
    for of in [&ours, &theirs] {
        let next = shared(of).fenced().acquire().await.expect("shared");
        let later = fence(&next);
        assert!(early < later && !check(&db, early).await && check(&db, later).await);
        // Also one that wants no fence.
        shared(of).acquire().await.expect("shared").release().await.expect("held");
        assert!(!check(&db, later).await);
        next.release().await.expect("held");
    }
    let last = shared(&ours).fenced().acquire().await.expect("shared");
    db.batch_execute("BEGIN").await.expect("begun");
    let checked = db.execute(exclusive.sql(), &[&exclusive.key(), &i64::from(fence(&last))]).await;
    assert!(is_not_late(checked));
    assert!(shared(&theirs).acquire().await.is_err_and(|busy| busy.is_busy()));
    db.batch_execute("COMMIT").await.expect("in time");
    shared(&theirs).acquire().await.expect("shared").release().await.expect("held");
    for guard in [first, last] {
        guard.release().await.expect("held");
    }
}

/// The holders of one process pass a lock on without a word to the server.
#[tokio::test]
async fn each_holder_of_a_turn_may_write_and_those_before_it_may_not() {
    let server = Postgres::start().await;
    let (db, locks) = (server.connect().await, locks(&server).await);
    let turn = (0..20).map(|_| async {
        let lock = Lock::new("stock:7").manager(&locks).wait(LONG_TTL);
        let guard = lock.fenced().acquire().await.expect("served");
        let mine = of(&guard);
        assert!(check(&db, &mine).await, "it holds the lock");
        guard.release().await.expect("held");
        mine
    });
    let mut checks = join_all(turn).await;
    checks.sort_by_key(FenceCheck::fence);
    let last = checks.pop().expect("some");
    for late in checks {
        assert!(!check(&db, &late).await, "{late:?} before {last:?}");
    }
    assert!(check(&db, &last).await);
}

/// The schema may be there for this alone.
#[tokio::test]
async fn the_largest_recorded_fence_decides_for_locks_of_another_store() {
    let server = Postgres::start().await;
    drop(locks(&server).await);
    let (db, elsewhere) = (server.connect().await, LockManager::isolated_memory());
    let grant = async || {
        let lock = Lock::new("stock:7").fenced().manager(&elsewhere);
        let guard = lock.acquire().await.expect("free");
        let fence = guard.fence().expect("it is fenced");
        guard.release().await.expect("held");
        i64::from(fence)
    };
    let early = grant().await;
    let late = grant().await;
    let record = "CALL lm1.record_fence($1, $2)";
    for (fence, may) in [(early, true), (early, true), (late, true), (early, false), (late, true)] {
        assert_eq!(is_in_time(&db, record, "stock:7", fence).await, may, "{fence}");
    }
}

/// With `SNIPPETS=1`, as they need drivers that nothing else needs. See `tests/house/snippets/run`.
#[tokio::test]
async fn the_snippets_of_the_page_write_in_time_and_are_refused_when_late() {
    if std::env::var_os("SNIPPETS").is_none() {
        return;
    }
    let server = Postgres::start().await;
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port());
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/house/snippets/Cargo.toml");
    let mut run = Command::new(env!("CARGO"));
    run.args(["run", "--locked", "--quiet", "--manifest-path", package]).env("DATABASE_URL", url);
    // What is built for it is nothing that other tests use.
    run.env("CARGO_TARGET_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/snippets"));
    assert!(run.status().expect("cargo").success());
}

/// Bodies that outlive their leases, before their transaction and in it. Returns how many bodies
/// have written, and how many of them after a later holder.
async fn late_writes(checks: bool) -> (usize, usize) {
    const TASKS: u64 = 12;
    const BODIES: u64 = 15;
    const TTL: Duration = Duration::from_millis(60);
    let server = Postgres::start().await;
    let db = server.connect().await;
    let tables = "CREATE TABLE account (id int); INSERT INTO account VALUES (1);
        CREATE TABLE written (place bigserial, fence bigint)";
    db.batch_execute(tables).await.expect("made");
    let holders = (0..TASKS).map(|seed| {
        let server = &server;
        async move {
            let (locks, mut db) = (locks(server).await, server.connect().await);
            let mut random = fastrand::Rng::with_seed(seed);
            for _ in 0..BODIES {
                let mut pause =
                    || Duration::from_millis(if random.bool() { 0 } else { random.u64(0..150) });
                let (before, inside) = (pause(), pause());
                let lock = Lock::new("stock:7").ttl(TTL).on_lost(OnLost::Finish).manager(&locks);
                // A waiter would learn of the end of a lease a little later.
                let guard = loop {
                    match lock.clone().fenced().acquire().await {
                        Ok(held) => break held,
                        Err(busy) => assert!(busy.is_busy(), "{busy}"),
                    }
                    tokio::time::sleep(TTL / 10).await;
                };
                tokio::time::sleep(before).await;
                write(&mut db, &of(&guard), checks, inside).await;
                // It was lost, mostly.
                let _ = guard.release().await;
            }
        }
    });
    join_all(holders).await;
    let rows = db.query("SELECT fence FROM written ORDER BY place", &[]).await.expect("rows");
    let fences: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    (fences.len(), fences.windows(2).filter(|pair| pair[0] > pair[1]).count())
}

async fn write(db: &mut Client, fence: &FenceCheck, checks: bool, pause: Duration) {
    let write = db.transaction().await.expect("begun");
    if checks && !begins(&write, fence).await {
        return;
    }
    // One writer after the other, in the order of `place`.
    write.execute("UPDATE account SET id = id", &[]).await.expect("written");
    tokio::time::sleep(pause).await;
    let insert = "INSERT INTO written (fence) VALUES ($1)";
    write.execute(insert, &[&fence.fence()]).await.expect("written");
    write.commit().await.expect("ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_body_that_has_outlived_its_lease_writes_after_a_later_holder() {
    let (written, late) = late_writes(true).await;
    assert!(written > 50 && late == 0, "{late} of {written}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_check_some_do() {
    let (written, late) = late_writes(false).await;
    assert!(late > 0, "none of {written}");
}
