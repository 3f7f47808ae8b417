//! The check that a guard gives, and the misuse of the procedures, which must fail.

use lockmacro_runtime::fence::FenceCheck;
use lockmacro_runtime::{Lock, LockError, LockKey, LockManager, distributed_lock};
use lockmacro_tests::times::LONG_TTL;
use lockmacro_tests::{AcquireFenced as _, is_in_time, is_not_late};
use lockmacro_tests::{Pooler, Postgres, Server};
use tokio_postgres::{Client, Error, NoTls};

use crate::{Locked, lock, manager, shared};

const CHECK: &str = "CALL lm1.check_fence($1, $2)";
const RECORD: &str = "CALL lm1.record_fence($1, $2)";

/// Whether the transaction of a check is let through.
async fn may_write(client: &Client, check: &FenceCheck) -> bool {
    is_in_time(client, check.sql(), check.key(), check.fence()).await
}

/// The check of a transaction that has begun.
async fn checked(client: &Client, check: &FenceCheck) -> bool {
    is_not_late(client.execute(check.sql(), &[&check.key(), &check.fence()]).await)
}

async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

fn code(error: &Error) -> &str {
    error.code().expect("an error of the server").code()
}

/// The message of a call that protects nothing.
fn refusal_of<T: std::fmt::Debug>(called: Result<T, Error>) -> String {
    let error = called.expect_err("it protects nothing");
    assert_eq!(code(&error), "LM002", "{error:?}");
    error.as_db_error().expect("an error of the procedure").message().to_owned()
}

/// The same of a call in a transaction.
async fn mistake(client: &Client, sql: &str, key: Option<&str>, fence: Option<i64>) -> String {
    run(client, "BEGIN").await;
    let called = client.execute(sql, &[&key, &fence]).await;
    run(client, "ROLLBACK").await;
    refusal_of(called)
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
    assert_eq!(checks[0].sql(), "CALL checks.check_fence($1, $2)");
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
    assert!(!is_in_time(&client, CHECK, "checks:granted", -1).await);
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
async fn in_body(of: &str, client: &Client, locks: &LockManager) -> Locked<(FenceCheck, bool)> {
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
    let (late, in_time) = in_body("a:b", &client, &locks).await.expect("free");
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
    let record = async |fence| is_in_time(&client, RECORD, "checks:record", fence).await;
    for (fence, may) in [(7, true), (7, true), (9, true), (7, false), (9, true), (1 << 53, true)] {
        assert_eq!(record(fence).await, may, "{fence}");
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
    run(&late, "BEGIN").await;
    assert!(!is_not_late(late.execute(RECORD, &[&"checks:record", &8_i64]).await));
    run(&client, "SET lock_timeout = '1s'").await;
    assert!(record(1 << 53).await, "it waits for nobody");
}

#[tokio::test]
async fn a_recorded_fence_is_forgotten_after_the_retention_and_not_before() {
    let server = Postgres::start().await;
    let (_locks, client) = (manager(&server.url()).await, server.connect().await);
    let rows = "INSERT INTO lm1.recorded SELECT key, 7, clock_timestamp() - age FROM (VALUES
        ('new', interval '0'), ('old', interval '2 min'), ('open', interval '2 min')) x (key, age)";
    client.batch_execute(rows).await.expect("made");
    let writer = server.connect().await;
    run(&writer, "BEGIN").await;
    assert!(is_not_late(writer.execute(RECORD, &[&"open", &8_i64]).await));
    client.query_one("SELECT lm1.tidy(60000, '')", &[]).await.expect("it waits for no writer");
    let left = client.query_one("SELECT array_agg(key ORDER BY key) FROM lm1.recorded", &[]).await;
    assert_eq!(left.expect("rows").get::<_, Vec<String>>(0), ["new", "open"]);
}

/// A row of data, which a writer with a check changes.
async fn make_data(client: &Client, name: &str) {
    run(client, &format!("CREATE TABLE {name} (n int); INSERT INTO {name} VALUES (0)")).await;
}

async fn data(client: &Client, name: &str) -> i32 {
    let row = client.query_one(&format!("SELECT n FROM {name}"), &[]).await;
    row.expect("a row").get(0)
}

/// The call with its values in the text.
fn literal(call: &str, check: &FenceCheck) -> String {
    let call = call.replace("$1", &format!("'{}'", check.key()));
    call.replace("$2", &check.fence().to_string())
}

/// The program ignores the error of the check, and goes on.
#[tokio::test]
async fn a_late_writer_that_reads_no_answer_writes_nothing() {
    let server = shared().await;
    let (locks, client) = (manager(&server.url()).await, server.connect().await);
    make_data(&client, "ignored").await;
    let [late, check] = two_holders(&locks, "checks:ignored").await;
    let write = "UPDATE ignored SET n = n + 1";
    // Before the writes, after them, and in one string with them, which is one transaction.
    run(&client, "BEGIN").await;
    let refused = client.execute(late.sql(), &[&late.key(), &late.fence()]).await;
    let refused = refused.expect_err("late");
    let message = refused.as_db_error().expect("of the procedure").message();
    assert_eq!(code(&refused), "LM003");
    assert_eq!(
        message,
        format!(
            "the fence {} of checks:ignored is late, as a later holder was granted the lock: roll back",
            late.fence()
        )
    );
    assert_eq!(code(&client.batch_execute(write).await.expect_err("aborted")), "25P02");
    run(&client, "COMMIT").await;
    run(&client, &format!("BEGIN; {write}")).await;
    assert!(!checked(&client, &late).await);
    run(&client, "COMMIT").await;
    let one_string = |check: &FenceCheck| format!("{}; {write}", literal(CHECK, check));
    assert_eq!(code(&client.batch_execute(&one_string(&late)).await.expect_err("late")), "LM003");
    assert_eq!(data(&client, "ignored").await, 0);
    run(&client, &format!("BEGIN; {write}")).await;
    assert!(checked(&client, &check).await);
    run(&client, "COMMIT").await;
    run(&client, &one_string(&check)).await;
    assert_eq!(data(&client, "ignored").await, 2);
}

/// It would be over before the writes.
#[tokio::test]
async fn a_check_outside_of_a_transaction_is_a_mistake_and_leaves_nothing() {
    let server = shared().await;
    let (locks, client) = (manager(&server.url()).await, server.connect().await);
    let [late, check] = two_holders(&locks, "checks:autocommit").await;
    let pooler = Pooler::to(&server, 2).await;
    let place = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", pooler.port());
    let (pooled, connection) = tokio_postgres::connect(&place, NoTls).await.expect("let in");
    tokio::spawn(connection);
    for client in [&client, &pooled] {
        for call in [CHECK, RECORD] {
            for check in [&late, &check] {
                let called = client.execute(call, &[&check.key(), &check.fence()]).await;
                let why = refusal_of(called);
                assert!(why.contains("not in a transaction") && why.contains("BEGIN"), "{why}");
                let literal = literal(call, check);
                refusal_of(client.batch_execute(&literal).await);
                let block = format!("DO $$ BEGIN {literal}; COMMIT; END $$");
                refusal_of(client.batch_execute(&block).await);
            }
        }
    }
    let rows = "SELECT checked FROM lm1.fence WHERE key = 'checks:autocommit'
        UNION ALL SELECT 1 FROM lm1.recorded WHERE key = 'checks:autocommit'";
    let rows = client.query(rows, &[]).await.expect("rows");
    assert_eq!(rows.iter().map(|row| row.get::<_, i64>(0)).collect::<Vec<_>>(), [0]);
    // What a program of an earlier version sends.
    let earlier = "SELECT lm1.check_fence($1, $2)";
    let error = client.query_one(earlier, &[&check.key(), &check.fence()]).await;
    assert_eq!(code(&error.expect_err("there is none")), "42809");
}

/// A function never commits, so the check cannot see in it whether its transaction goes on.
#[tokio::test]
async fn a_check_that_another_routine_calls_is_a_mistake() {
    let server = shared().await;
    let (locks, client) = (manager(&server.url()).await, server.connect().await);
    let [_, check] = two_holders(&locks, "checks:routine").await;
    let routines = "CREATE FUNCTION checks(called text) RETURNS void LANGUAGE plpgsql AS $$
            BEGIN EXECUTE called; END $$;
        CREATE PROCEDURE checks_and_commits(called text) LANGUAGE plpgsql AS $$
            BEGIN EXECUTE called; COMMIT; END $$;
        CREATE PROCEDURE checks_by_itself(called text) LANGUAGE plpgsql
            SECURITY DEFINER SET search_path = public AS $$ BEGIN EXECUTE called; END $$";
    run(&client, routines).await;
    for call in [CHECK, RECORD] {
        let called = literal(call, &check).replace('\'', "''");
        for by in ["SELECT checks", "CALL checks_and_commits", "CALL checks_by_itself"] {
            let refused = client.batch_execute(&format!("{by}('{called}')")).await;
            let why = refusal_of(refused);
            assert!(why.contains("called by another function"), "{why}");
        }
        let block = format!("DO $$ BEGIN EXECUTE '{called}'; END $$");
        refusal_of(client.batch_execute(&block).await);
    }
}

#[tokio::test]
async fn a_late_fence_of_a_lock_of_this_database_is_not_recorded_either() {
    let server = shared().await;
    let (locks, client) = (manager(&server.url()).await, server.connect().await);
    let [late, check] = two_holders(&locks, "checks:recorded").await;
    for (check, in_time) in [(&late, false), (&check, true)] {
        let came = is_in_time(&client, RECORD, check.key(), check.fence()).await;
        assert_eq!(came, in_time);
    }
}

/// A transaction that is rolled back to the savepoint goes on without the check and its error.
#[tokio::test]
async fn a_check_in_a_savepoint_is_a_mistake_and_one_before_it_holds() {
    let server = shared().await;
    let (locks, client) = (manager(&server.url()).await, server.connect().await);
    let [late, check] = two_holders(&locks, "checks:savepoint").await;
    let swallow = "CREATE FUNCTION swallow(called text) RETURNS text LANGUAGE plpgsql AS $$
        BEGIN EXECUTE called; RETURN ''; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$";
    run(&client, swallow).await;
    for call in [CHECK, RECORD] {
        run(&client, "BEGIN; SAVEPOINT s").await;
        let why = refusal_of(client.execute(call, &[&check.key(), &check.fence()]).await);
        assert!(why.contains("in a savepoint"), "{why}");
        run(&client, "ROLLBACK TO s").await;
        refusal_of(client.execute(call, &[&check.key(), &check.fence()]).await);
        run(&client, "ROLLBACK TO s; RELEASE s").await;
        let literal = literal(call, &check);
        let row = client.query_one("SELECT swallow($1)", &[&literal]).await.expect("swallowed");
        assert_eq!(row.get::<_, &str>(0), "LM002");
        client.execute(call, &[&check.key(), &check.fence()]).await.expect("outside of it");
        run(&client, "COMMIT").await;
    }
    run(&client, "BEGIN; SAVEPOINT s").await;
    assert!(!checked(&client, &late).await);
    run(&client, "ROLLBACK; BEGIN").await;
    assert!(checked(&client, &check).await);
    run(&client, "SAVEPOINT s; SELECT 1; ROLLBACK TO s").await;
    let busy = lock(&locks, "checks:savepoint").acquire().await.expect_err("it still holds");
    assert!(busy.is_busy(), "{busy}");
    run(&client, "COMMIT").await;
    // Others are granted it again.
    let _checks = two_holders(&locks, "checks:savepoint").await;
}

#[tokio::test]
async fn a_check_that_cannot_write_fails() {
    let server = shared().await;
    let (locks, client) = (manager(&server.url()).await, server.connect().await);
    let [_, check] = two_holders(&locks, "checks:read").await;
    for call in [CHECK, RECORD] {
        run(&client, "BEGIN READ ONLY").await;
        let called = client.execute(call, &[&check.key(), &check.fence()]).await;
        assert_eq!(code(&called.expect_err("it writes")), "25006");
        run(&client, "ROLLBACK").await;
    }
}

const ISOLATIONS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

#[tokio::test]
async fn a_late_writer_is_refused_and_the_last_one_is_not_in_each_isolation() {
    let server = shared().await;
    let (locks, client) = (manager(&server.url()).await, server.connect().await);
    for isolation in ISOLATIONS {
        let [late, check] = two_holders(&locks, "checks:isolation").await;
        for (check, in_time) in [(late, false), (check, true)] {
            run(&client, &format!("BEGIN ISOLATION LEVEL {isolation}")).await;
            assert_eq!(checked(&client, &check).await, in_time, "{isolation}");
            run(&client, "COMMIT").await;
        }
    }
}

/// The row of its fence may be as of before its grant there, or as of before the next one.
#[tokio::test]
async fn a_fence_beside_an_older_snapshot_is_refused() {
    let server = shared().await;
    let (locks, client) = (manager(&server.url()).await, server.connect().await);
    for isolation in &ISOLATIONS[1..] {
        for nth in 0..3 {
            let [_, before] = two_holders(&locks, "checks:snapshot").await;
            let begin = format!("BEGIN ISOLATION LEVEL {isolation}; SELECT FROM lm1.fence");
            run(&client, &begin).await;
            let [late, last] = two_holders(&locks, "checks:snapshot").await;
            let check = &[before, late, last][nth];
            let called = client.execute(check.sql(), &[&check.key(), &check.fence()]).await;
            assert_eq!(code(&called.expect_err("too early")), "40001", "{isolation}: {nth}");
            run(&client, "ROLLBACK").await;
        }
    }
}

/// As the driver of a program does which keeps its statements.
#[tokio::test]
async fn a_prepared_check_through_a_pooler_lets_no_late_writer_through() {
    let server = shared().await;
    let (locks, client) = (manager(&server.url()).await, server.connect().await);
    make_data(&client, "pooled_data").await;
    let pooler = Pooler::to(&server, 2).await;
    let place = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", pooler.port());
    let connected = async || {
        let (client, connection) = tokio_postgres::connect(&place, NoTls).await.expect("let in");
        tokio::spawn(connection);
        client
    };
    let (ours, other) = (connected().await, connected().await);
    let mut written = 0;
    for nth in 0..20 {
        let [late, check] = two_holders(&locks, "checks:pooled").await;
        // Which connection to the server it has changes between its transactions.
        if nth % 2 == 0 {
            run(&other, "BEGIN").await;
        }
        run(&ours, "BEGIN").await;
        let prepared = ours.prepare(check.sql()).await;
        run(&ours, "COMMIT").await;
        for (check, in_time) in [(&late, false), (&check, true)] {
            run(&ours, "BEGIN").await;
            let refused = match &prepared {
                Ok(check_fence) => {
                    ours.execute(check_fence, &[&check.key(), &check.fence()]).await.err()
                }
                Err(_) => ours.batch_execute(&literal(CHECK, check)).await.err(),
            };
            // The pooler before 1.21 may have no such statement on this connection.
            if let Some(error) = &refused {
                assert!(
                    !in_time && code(error) == "LM003" || code(error).starts_with("26"),
                    "{error:?}"
                );
            }
            let wrote = ours.batch_execute("UPDATE pooled_data SET n = n + 1").await.is_ok();
            assert_eq!(wrote, refused.is_none());
            assert!(in_time || !wrote, "a late writer");
            run(&ours, "COMMIT").await;
            written += i32::from(wrote);
        }
        if nth % 2 == 0 {
            run(&other, "COMMIT").await;
        }
    }
    assert!(written > 0 && data(&client, "pooled_data").await == written, "{written}");
}

/// The next holder of a turn has no grant of its own, by which the database could tell.
#[tokio::test]
async fn a_check_cannot_be_had_once_the_lock_was_released() {
    let server = shared().await;
    let ours = manager(&server.url_of("postgres", "install=1&turn=1s")).await;
    let guard = lock(&ours, "turn: late").fenced().acquire().await.expect("free");
    let shared = guard.handle();
    let waiting = tokio::spawn(lock(&ours, "turn: late").wait(LONG_TTL).acquire());
    tokio::task::yield_now().await;
    guard.release().await.expect("still held");
    let error = shared.fence_check().expect_err("it is late");
    assert!(matches!(error, LockError::Lost(_)), "{error:?}");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("still held");
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
