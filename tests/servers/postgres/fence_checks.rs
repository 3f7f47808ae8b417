//! The check that a guard gives, and the misuse of the functions that must not answer "in time".

use lockmacro_runtime::fence::FenceCheck;
use lockmacro_runtime::{Lock, LockError, LockKey, LockManager, distributed_lock};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::times::LONG_TTL;
use lockmacro_tests::{Postgres, Server};
use tokio_postgres::{Client, Error};

use crate::{Locked, lock, manager, shared};

const CHECK: &str = "SELECT lm1.check_fence($1, $2)";
const RECORD: &str = "SELECT lm1.record_fence($1, $2)";

async fn call(
    client: &Client,
    sql: &str,
    key: Option<&str>,
    fence: Option<i64>,
) -> Result<bool, Error> {
    Ok(client.query_one(sql, &[&key, &fence]).await?.get(0))
}

async fn may_write(client: &Client, check: &FenceCheck) -> bool {
    let checked = call(client, check.sql(), Some(check.key()), Some(check.fence())).await;
    checked.expect("an answer")
}

/// The error of a call that nobody may take for an answer.
async fn mistake(client: &Client, sql: &str, key: Option<&str>, fence: Option<i64>) -> String {
    let error = call(client, sql, key, fence).await.expect_err("no answer");
    let error = error.as_db_error().expect("an error of the function");
    assert_eq!(error.code().code(), "LM002", "{error}");
    error.message().to_owned()
}

/// The setting of which a guard says that it has no check.
fn refused<T: std::fmt::Debug>(check: Result<T, LockError>) -> (&'static str, String) {
    match check.expect_err("no check") {
        LockError::InvalidSetting { setting, detail, .. } => (setting, detail),
        other => panic!("not `InvalidSetting`: {other:?}"),
    }
}

/// Two holders, one after the other, on the same key: the check of each.
async fn two_holders(locks: &LockManager, key: impl Into<LockKey>) -> [FenceCheck; 2] {
    let key = key.into();
    let held = async || {
        let lock = Lock::new(key.clone()).ttl(LONG_TTL).manager(locks);
        let (guard, fences) = lock.acquire_fenced().await.expect("free");
        let check = guard.fence_check().expect("there");
        assert_eq!(check.fence(), i64::from(fences[0]));
        guard.release().await.expect("still held");
        check
    };
    [held().await, held().await]
}

/// The check of the late one is false, and that of the last holder true.
async fn the_late_one_is_refused(client: &Client, [late, last]: &[FenceCheck; 2]) {
    assert!(!may_write(client, late).await && may_write(client, last).await);
    assert!(!may_write(client, late).await);
}

#[tokio::test]
async fn a_guard_checks_the_whole_key_and_the_bare_one_is_a_mistake() {
    let server = shared().await;
    let locks = manager(&server.url_of("postgres", "install=1&key_prefix=shop:")).await;
    let client = server.connect().await;
    let checks = two_holders(&locks, "checks:bare").await;
    assert_eq!((checks[0].sql(), checks[0].key()), (CHECK, "shop:checks:bare"));
    the_late_one_is_refused(&client, &checks).await;
    for check in &checks {
        let error = mistake(&client, CHECK, Some("checks:bare"), Some(check.fence())).await;
        let why = "no fence was ever granted for checks:bare: is it the whole key, and the schema of the locks?";
        assert_eq!(error, why);
    }
}

#[tokio::test]
async fn a_guard_checks_in_its_own_schema_and_another_one_is_a_mistake() {
    let server = shared().await;
    let _other = manager(&server.url()).await;
    let locks = manager(&server.url_of("postgres", "install=1&schema=checks")).await;
    let client = server.connect().await;
    let checks = two_holders(&locks, "checks:schema").await;
    assert_eq!(checks[0].sql(), "SELECT checks.check_fence($1, $2)");
    the_late_one_is_refused(&client, &checks).await;
    let error = mistake(&client, CHECK, Some("checks:schema"), Some(checks[0].fence())).await;
    assert!(error.ends_with("the schema of the locks?"), "{error}");
}

#[tokio::test]
async fn a_guard_checks_the_key_as_the_database_has_it() {
    let server = shared().await;
    let (locks, client) = (manager(&server.url()).await, server.connect().await);
    let template = || LockKey::template("checks:<of>").literal("checks:").value("a:b");
    for (key, plain, stored) in [
        (template().into(), "checks:a:b", "checks:a%3Ab"),
        (LockKey::from("checks:%\0"), "checks:%", "lm1:checks:%25%00"),
    ] {
        let checks = two_holders(&locks, key).await;
        assert_eq!(checks[0].key(), stored);
        the_late_one_is_refused(&client, &checks).await;
        mistake(&client, CHECK, Some(plain), Some(checks[0].fence())).await;
    }
}

#[tokio::test]
async fn what_was_never_granted_is_a_mistake_and_leaves_nothing() {
    let server = shared().await;
    let (locks, client) = (manager(&server.url()).await, server.connect().await);
    let [early, last] = two_holders(&locks, "checks:granted").await;
    let [_, later] = two_holders(&locks, "checks:later").await;
    // A typo, and a key that is locked without a fence.
    lock(&locks, "checks:unfenced").acquire().await.expect("free").release().await.expect("held");
    for key in ["checks:grantde", "checks:unfenced", ""] {
        let error = mistake(&client, CHECK, Some(key), Some(early.fence())).await;
        assert!(error.starts_with("no fence was ever granted for"), "{error}");
    }
    // Of another key, in nanoseconds, and beyond all fences.
    for fence in [later.fence(), 1_795_799_774_883_986_000, (1 << 53) + 1] {
        let error = mistake(&client, CHECK, Some("checks:granted"), Some(fence)).await;
        assert!(
            error.contains("was never granted for checks:granted: use record_fence"),
            "{error}"
        );
    }
    for (key, fence) in [(None, Some(1)), (Some("checks:granted"), None), (None, None)] {
        assert!(mistake(&client, CHECK, key, fence).await.contains("NULL"));
    }
    assert!(!call(&client, CHECK, Some("checks:granted"), Some(-1)).await.expect("it is late"));
    the_late_one_is_refused(&client, &[early, last]).await;
    let rows = "SELECT FROM lm1.fence WHERE key IN ('checks:grantde', 'checks:unfenced', '')";
    assert!(client.query(rows, &[]).await.expect("rows").is_empty());
}

#[tokio::test]
async fn each_of_several_keys_has_a_check_of_its_own() {
    let server = shared().await;
    let (locks, client) = (manager(&server.url()).await, server.connect().await);
    let both = || Lock::many(["checks:two", "checks:one"]).ttl(LONG_TTL).manager(&locks);
    let guard = both().fenced().acquire().await.expect("free");
    let early = guard.fence_checks().expect("there");
    let (setting, detail) = refused(guard.fence_check());
    assert!(setting == "keys" && detail.contains("`fence_checks`"), "{setting}: {detail}");
    guard.release().await.expect("still held");
    assert_eq!([early[0].key(), early[1].key()], ["checks:one", "checks:two"]);
    // One of them is granted to somebody else.
    let one = two_holders(&locks, "checks:one").await;
    assert!(!may_write(&client, &early[0]).await && may_write(&client, &early[1]).await);
    assert!(may_write(&client, &one[1]).await);
    let guard = lock(&locks, "checks:one").fenced().acquire().await.expect("free");
    assert_eq!(guard.fence_checks().expect("there"), [guard.fence_check().expect("there")]);
    guard.release().await.expect("still held");
    server.keeps_nothing("checks:").await;
}

#[tokio::test]
async fn a_lock_without_a_check_says_why() {
    let server = shared().await;
    let (locks, redis) = (manager(&server.url()).await, Server::start());
    let redis = manager(&redis.url()).await;
    let memory = LockManager::isolated_memory();
    let guard = lock(&locks, "checks:why").acquire().await.expect("free");
    for (setting, detail) in [refused(guard.fence_check()), refused(guard.fence_checks())] {
        assert!(setting == "fence" && detail.contains("`Lock::fenced`"), "{setting}: {detail}");
    }
    guard.release().await.expect("still held");
    for (of, held) in [
        ("shared", lock(&locks, "checks:why").shared()),
        ("permits", lock(&locks, "checks:why").permits(3)),
    ] {
        let guard = held.fenced().acquire().await.expect("free");
        let (setting, detail) = refused(guard.fence_check());
        assert!(setting == of && detail.contains("only the last"), "{setting}: {detail}");
        guard.release().await.expect("still held");
    }
    for elsewhere in [&redis, &memory] {
        let guard = lock(elsewhere, "checks:why").fenced().acquire().await.expect("free");
        let (setting, detail) = refused(guard.fence_check());
        assert!(setting == "fence_check" && detail.contains("record_fence"), "{detail}");
        guard.release().await.expect("still held");
    }
    server.keeps_nothing("checks:").await;
}

#[distributed_lock(key = "checks:attribute:<of>", guard = lock, fence = fence, manager = locks)]
async fn checked(of: &str, client: &Client, locks: &LockManager) -> Locked<(FenceCheck, bool)> {
    let check = lock.fence_check()?;
    let in_time = may_write(client, &check).await;
    Ok((check, in_time))
}

#[distributed_lock(key = "checks:attribute:<of>", guard = lock, manager = locks)]
async fn unfenced(of: &str, locks: &LockManager) -> Locked<FenceCheck> {
    lock.fence_check()
}

#[distributed_lock(key = ["checks:<one>", "checks:<two>"], guard = lock, fence = [a, b], manager = locks)]
async fn several(one: &str, two: &str, locks: &LockManager) -> Locked<[bool; 2]> {
    let of_one = locks.guard_of(&*format!("checks:{two}")).map(|one| one.fence_check());
    let checks = lock.fence_checks()?;
    Ok([
        of_one == Some(Ok(checks[1].clone())),
        [a, b].map(i64::from) == [checks[0].fence(), checks[1].fence()],
    ])
}

#[tokio::test]
async fn the_attribute_gives_the_check_by_its_guard() {
    let server = shared().await;
    let (locks, client) = (manager(&server.url()).await, server.connect().await);
    let (late, in_time) = checked("a:b", &client, &locks).await.expect("free");
    assert!(in_time && late.key() == "checks:attribute:a%3Ab", "{late:?}");
    assert_eq!(refused(unfenced("a:b", &locks).await).0, "fence");
    assert!(!may_write(&client, &late).await);
    assert_eq!(several("a", "b", &locks).await, Ok([true; 2]));
}

#[tokio::test]
async fn a_lost_lock_is_checked_by_the_database() {
    let server = shared().await;
    let (ours, theirs) = (manager(&server.url()).await, manager(&server.url()).await);
    let client = server.connect().await;
    let guard = lock(&ours, "checks:lost").fenced().acquire().await.expect("free");
    let check = || guard.fence_check().expect("there");
    client.batch_execute("DELETE FROM lm1.lease WHERE key = 'checks:lost'").await.expect("lost");
    assert!(may_write(&client, &check()).await, "nobody else has it");
    let next = lock(&theirs, "checks:lost").fenced().acquire().await.expect("free");
    assert!(!may_write(&client, &check()).await);
    assert!(may_write(&client, &next.fence_check().expect("there")).await);
    next.release().await.expect("still held");
}

#[tokio::test]
async fn a_recorded_fence_is_compared_with_the_largest_and_never_counts_as_a_grant() {
    let server = shared().await;
    let (_locks, client) = (manager(&server.url()).await, server.connect().await);
    let record = async |fence| call(&client, RECORD, Some("checks:record"), Some(fence)).await;
    for (fence, may) in [(7, true), (7, true), (9, true), (7, false), (9, true), (1 << 53, true)] {
        assert_eq!(record(fence).await.expect("an answer"), may, "{fence}");
    }
    for fence in [7, 9] {
        mistake(&client, CHECK, Some("checks:record"), Some(fence)).await;
    }
    for (key, fence) in [
        (None, Some(1)),
        (Some("new"), None),
        (Some("new"), Some(-1)),
        (Some("new"), Some((1 << 53) + 1)),
    ] {
        mistake(&client, RECORD, key, fence).await;
    }
    // A late writer locks nothing.
    let late = server.connect().await;
    late.batch_execute("BEGIN").await.expect("begun");
    assert!(!call(&late, RECORD, Some("checks:record"), Some(8)).await.expect("an answer"));
    client.batch_execute("SET lock_timeout = '1s'").await.expect("set");
    assert!(record(1 << 53).await.expect("it waits for nobody"));
}

#[tokio::test]
async fn a_recorded_fence_is_forgotten_after_the_retention_and_not_before() {
    let server = Postgres::start().await;
    let (_locks, client) = (manager(&server.url()).await, server.connect().await);
    let rows = "INSERT INTO lm1.recorded SELECT key, 7, clock_timestamp() - age FROM (VALUES
        ('new', interval '0'), ('old', interval '2 min'), ('open', interval '2 min')) x (key, age)";
    client.batch_execute(rows).await.expect("made");
    let writer = server.connect().await;
    writer.batch_execute("BEGIN").await.expect("begun");
    assert!(call(&writer, RECORD, Some("open"), Some(8)).await.expect("an answer"));
    client.query_one("SELECT lm1.tidy(60000, '')", &[]).await.expect("it waits for no writer");
    let left = client.query_one("SELECT array_agg(key ORDER BY key) FROM lm1.recorded", &[]).await;
    assert_eq!(left.expect("rows").get::<_, Vec<String>>(0), ["new", "open"]);
}

/// What the page says that the check cannot do.
#[tokio::test]
async fn a_check_that_is_rolled_back_or_cannot_be_made_keeps_nobody_out() {
    let server = shared().await;
    let (locks, client) = (manager(&server.url()).await, server.connect().await);
    let [_, check] = two_holders(&locks, "checks:cannot").await;
    client.batch_execute("BEGIN; SAVEPOINT s").await.expect("begun");
    assert!(may_write(&client, &check).await);
    client.batch_execute("ROLLBACK TO s").await.expect("rolled back");
    let [_, next] = two_holders(&locks, "checks:cannot").await;
    client.batch_execute("COMMIT").await.expect("late, and nothing says so");
    client.batch_execute("BEGIN READ ONLY").await.expect("begun");
    let error = call(&client, check.sql(), Some(check.key()), Some(next.fence())).await;
    assert_eq!(error.expect_err("it writes").code().map(|code| code.code()), Some("25006"));
    client.batch_execute("ROLLBACK").await.expect("ended");
}

/// The row of its fence may be as of before its grant there.
#[tokio::test]
async fn a_fence_that_is_newer_than_the_snapshot_is_refused() {
    let server = shared().await;
    let (locks, client) = (manager(&server.url()).await, server.connect().await);
    two_holders(&locks, "checks:snapshot").await;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM lm1.fence";
    client.batch_execute(begin).await.expect("begun");
    let [_, check] = two_holders(&locks, "checks:snapshot").await;
    let error = call(&client, check.sql(), Some(check.key()), Some(check.fence())).await;
    assert_eq!(error.expect_err("too early").code().map(|code| code.code()), Some("40001"));
}

/// In a turn a lock passes on without a word to the database, which would know of no later grant.
#[tokio::test]
async fn a_late_writer_is_refused_when_a_caller_of_its_own_process_has_the_lock() {
    let server = shared().await;
    let ours = manager(&server.url_of("postgres", "install=1&turn=1s")).await;
    let client = server.connect().await;
    for (key, is_fenced) in [("turn: plain", false), ("turn: fenced", true)] {
        let guard = lock(&ours, key).fenced().acquire().await.expect("free");
        let check = guard.fence_check().expect("it is in PostgreSQL");
        let next = lock(&ours, key).wait(LONG_TTL);
        let waiting = tokio::spawn(async move {
            if is_fenced { next.fenced().acquire().await } else { next.acquire().await }
        });
        // It waits in the queue of the process, or is about to.
        tokio::task::yield_now().await;
        assert!(may_write(&client, &check).await);
        guard.release().await.expect("still held");
        let guard = waiting.await.expect("no panic").expect("its turn");
        assert!(!may_write(&client, &check).await, "{key}");
        guard.release().await.expect("still held");
    }
    server.keeps_nothing("turn").await;
}
