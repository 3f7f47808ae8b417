//! Users who may not do everything.

use std::time::Duration;

use lockmacro_runtime::defer::{DeferredFn, NewJob, Worker, argument};
use lockmacro_runtime::{Lock, LockError};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::times::{LONG_TTL, ms};
use lockmacro_tests::{Postgres, is_in_time, within};
use tokio::time::timeout;

use crate::{Locked, TIMEOUT, is_renewed, is_waited_for, lock, manager, refusal, shared, works};

/// Makes the schema and a user without a right on it. Returns the address for that user.
async fn with_user(server: &Postgres, name: &str) -> String {
    let _ = manager(&server.url_of("postgres", &format!("install=1&schema={name}"))).await;
    server.execute(&format!("CREATE ROLE {name} LOGIN")).await;
    server.url_of(name, &format!("schema={name}"))
}

fn is_denied(error: &LockError, grant: &str) {
    assert!(matches!(error, LockError::AccessDenied { .. }), "{error:?}");
    assert!(error.to_string().contains(grant), "{error}");
}

async fn denied(url: &str, grant: &str) {
    let builder = lockmacro_runtime::LockManager::builder().timeout(TIMEOUT);
    is_denied(&builder.connect(url).await.expect_err("a right is missing"), grant);
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_when_a_manager_connects_and_works_once_granted() {
    let server = shared().await;
    let url = with_user(&server, "clerk").await;
    denied(&format!("{url}_new&install=1"), "as a user who may create one").await;
    denied(&url, "GRANT USAGE ON SCHEMA clerk TO \"clerk\"").await;
    server.execute("GRANT USAGE ON SCHEMA clerk TO clerk").await;
    denied(&url, "GRANT EXECUTE ON ALL ROUTINES IN SCHEMA clerk TO \"clerk\"").await;
    // A function that a manager needs later.
    server.execute("GRANT EXECUTE ON FUNCTION clerk.version TO clerk").await;
    denied(&url, "GRANT EXECUTE ON ALL ROUTINES IN SCHEMA clerk TO \"clerk\"").await;
    server.execute("GRANT EXECUTE ON ALL ROUTINES IN SCHEMA clerk TO clerk").await;
    works(&manager(&url).await, "rights").await;
}

/// Each name is quoted as a statement needs it.
#[tokio::test]
async fn a_user_with_an_odd_name_is_told_a_statement_that_works() {
    let server = shared().await;
    let _ = manager(&server.url_of("postgres", "install=1&schema=odd")).await;
    server.execute("CREATE ROLE \"we\"\"ird\" LOGIN").await;
    let url = server.url_of("we%22ird", "schema=odd");
    let builder = lockmacro_runtime::LockManager::builder().timeout(TIMEOUT);
    let error = builder.connect(&url).await.expect_err("a right is missing").to_string();
    let grants = &error[error.find("GRANT").expect("named")..error.rfind('"').expect("quoted") + 1];
    server.execute(grants).await;
    works(&manager(&url).await, "odd").await;
}

#[tokio::test]
async fn a_user_who_may_not_connect_is_told_which_right_is_missing() {
    let server = shared().await;
    let client = server.connect().await;
    client.batch_execute("CREATE DATABASE closed").await.expect("made");
    server.execute("REVOKE CONNECT ON DATABASE closed FROM PUBLIC; CREATE ROLE out LOGIN").await;
    let url = server.url_of("out", "").replace("/postgres?", "/closed?");
    denied(&url, "GRANT CONNECT ON DATABASE").await;
}

#[tokio::test]
async fn a_right_that_is_taken_away_for_a_while_does_not_end_a_worker() {
    let server = shared().await;
    let url = with_user(&server, "toiler").await;
    let grant = "GRANT USAGE ON SCHEMA toiler TO toiler;
        GRANT EXECUTE ON ALL ROUTINES IN SCHEMA toiler TO toiler";
    server.execute(grant).await;
    let locks = manager(&url).await;
    let (done, mut runs) = tokio::sync::mpsc::unbounded_channel();
    let function = DeferredFn::new("f", (argument("n"),), move |(n,): (u64,)| {
        let done = done.clone();
        async move { done.send(n).expect("received") }
    });
    let put = async |n: u64| {
        let job = NewJob::new("f", format!("job {n}"), format!("[{n}]"), "toiler");
        manager(&server.url_of("postgres", "schema=toiler")).await.job_queue().put(job).await
    };
    let working = tokio::spawn(Worker::new(&locks).register(function).run());
    put(1).await.expect("stored");
    assert_eq!(timeout(LONG_TTL, runs.recv()).await.expect("in time"), Some(1));
    server.execute("REVOKE ALL ON ALL ROUTINES IN SCHEMA toiler FROM toiler").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!working.is_finished(), "it goes on");
    server.execute(grant).await;
    put(2).await.expect("stored");
    assert_eq!(timeout(LONG_TTL, runs.recv()).await.expect("in time"), Some(2));
    locks.shutdown(TIMEOUT).await.expect("nothing is held");
    working.await.expect("no panic").expect("stopped");
}

#[tokio::test]
async fn a_right_that_is_taken_away_is_named_by_the_next_lock_and_works_once_granted_again() {
    let server = shared().await;
    let url = with_user(&server, "temp").await;
    let grant = "GRANT USAGE ON SCHEMA temp TO temp;
        GRANT EXECUTE ON ALL ROUTINES IN SCHEMA temp TO temp";
    server.execute(grant).await;
    let manager = within(TIMEOUT, &url).await;
    let guard = lock(&manager, "rights: held").acquire().await.expect("free");
    server.execute("REVOKE ALL ON ALL ROUTINES IN SCHEMA temp FROM temp").await;
    is_denied(&refusal(&manager, "rights").await, "EXECUTE ON ALL ROUTINES IN SCHEMA");
    let waiting = lock(&manager, "rights").wait(LONG_TTL).acquire();
    is_denied(&waiting.await.expect_err("denied"), "EXECUTE ON ALL ROUTINES IN SCHEMA");
    is_denied(&guard.release().await.expect_err("denied"), "EXECUTE ON ALL ROUTINES IN SCHEMA");
    server.execute(grant).await;
    works(&manager, "rights").await;
}

/// Not one right on a table, and a path on which other schemas come first.
#[tokio::test]
async fn usage_and_execute_are_enough_for_all_that_locks_can_do() {
    let server = shared().await;
    let _ = manager(&server.url()).await;
    server
        .execute(
            "CREATE ROLE modest LOGIN;
            ALTER ROLE modest SET search_path = public, pg_temp;
            ALTER ROLE modest SET default_transaction_isolation = serializable;
            GRANT USAGE ON SCHEMA lm1 TO modest;
            GRANT EXECUTE ON ALL ROUTINES IN SCHEMA lm1 TO modest",
        )
        .await;
    let url = server.url_of("modest", "install=1");
    let (ours, theirs) = (manager(&url).await, manager(&url).await);
    let client = server.connect().await;
    for of in [Lock::shared, |lock| Lock::permits(lock, 2)] {
        let ours = of(lock(&ours, "modest")).acquire().await.expect("free");
        let theirs = of(lock(&theirs, "modest")).acquire().await.expect("two may");
        ours.release().await.expect("still held");
        theirs.release().await.expect("still held");
    }
    let several = || Lock::many(["modest", "modest: 2"]).ttl(LONG_TTL);
    let guard = several().manager(&ours).acquire().await.expect("free");
    let waiting = tokio::spawn(several().manager(&theirs).wait(LONG_TTL).acquire_fenced());
    guard.release().await.expect("still held");
    let (guard, _) = waiting.await.expect("no panic").expect("its turn");
    guard.release().await.expect("still held");
    let renewed = Lock::new("modest").ttl(ms(6_000)).renew().manager(&ours);
    let guard = renewed.fenced().acquire().await.expect("free");
    let check = guard.fence_check().expect("it has one");
    client.batch_execute("SET ROLE modest").await.expect("it is there");
    for call in [check.sql(), "CALL lm1.record_fence($1, $2)"] {
        assert!(is_in_time(&client, call, check.key(), check.fence()).await, "{call}");
    }
    client.batch_execute("RESET ROLE").await.expect("back");
    is_renewed(&client, "modest").await;
    let waiting = lock(&theirs, "modest").wait(LONG_TTL);
    let waiting = tokio::spawn(waiting.min_hold(ms(300)).run(async { Locked::Ok(7) }));
    is_waited_for(&client, "modest").await;
    guard.release().await.expect("still held");
    assert_eq!(waiting.await.expect("no panic"), Ok(7));
    assert!(lock(&ours, "modest").acquire().await.is_err_and(|error| error.is_busy()), "kept");
    let kept = lock(&ours, "modest").wait(LONG_TTL).run(async { Locked::Ok(8) });
    assert_eq!(timeout(LONG_TTL, kept).await.expect("in time"), Ok(8));
    server.keeps_nothing("modest").await;
}

#[tokio::test]
async fn a_wrong_login_is_an_authentication_error_that_does_not_show_it() {
    let server = shared().await;
    let _ = manager(&server.url()).await;
    server
        .execute(
            "CREATE ROLE keeper LOGIN PASSWORD 'hunter2';
            GRANT USAGE ON SCHEMA lm1 TO keeper;
            GRANT EXECUTE ON ALL ROUTINES IN SCHEMA lm1 TO keeper",
        )
        .await;
    server.asks_for_a_password("keeper").await;
    for login in ["keeper:wrong-guess", "keeper", "nobody:wrong-guess"] {
        let builder = lockmacro_runtime::LockManager::builder().timeout(TIMEOUT);
        let error = builder.connect(&server.url_of(login, "")).await.expect_err("not let in");
        assert!(matches!(error, LockError::Authentication { .. }), "{login}: {error:?}");
        assert!(!format!("{error} {error:?}").contains("wrong-guess"), "{error:?}");
    }
    works(&manager(&server.url_of("keeper:hunter2", "")).await, "keeper").await;
}
