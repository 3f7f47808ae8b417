//! Deferred calls that are shown, tried again and removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockmacro_runtime::LockError;
use lockmacro_runtime::defer::{DeferredFn, JobState, Worker, argument};
use serde_json::json;

use super::*;

/// Stores a call, as a busy function does.
async fn put(locks: &LockManager, function: &DeferredFn<(u64,)>, key: &str, number: u64) -> String {
    let held = hold(locks, key).await;
    let busy = Lock::new(key).manager(locks).acquire().await.expect_err("it is held");
    let deferred = function.clone().manager(locks).later(busy, (number,)).await;
    held.release().await.expect("released");
    match deferred {
        LockError::Deferred { id, .. } => id.into(),
        other => panic!("not deferred: {other}"),
    }
}

async fn dead(locks: &LockManager, function: &str) -> usize {
    let page = locks.deferrer().list(function.into(), JobState::Dead, 0, 0).await.expect("listed");
    assert!(page.jobs.is_empty(), "none were asked for");
    page.total
}

#[tokio::test]
async fn dead_letters_are_shown_tried_again_and_removed() {
    let server = Server::start();
    let locks = manager(&server, "desk").await;
    let mended = Arc::new(AtomicBool::new(false));
    let works = Arc::clone(&mended);
    let function = DeferredFn::new("shop::audit", (argument("number"),), move |(_,): (u64,)| {
        let result = if works.load(Ordering::Relaxed) { Ok(()) } else { Err("no stock\u{7}") };
        async move { result }
    });
    let function = function.delay(Duration::from_millis(10)).attempts(1);
    let one = put(&locks, &function, "order:1", 1).await;
    let two = put(&locks, &function, "order:2", 2).await;
    let working = tokio::spawn(Worker::new(&locks).register(function.clone()).run());
    eventually("both are dead", IN_TIME, async || dead(&locks, "shop::audit").await == 2).await;
    let late = put(&locks, &function.delay(LONG), "order:3", 3).await;

    let said = tool(&server, &["jobs"]).await;
    assert_eq!(said.rows()[0], ["FUNCTION", "WAITING", "RUNNING", "DEAD"], "{said:?}");
    assert_eq!(said.rows()[1], ["shop::audit", "1", "0", "2"]);

    let said = tool(&server, &["jobs", "shop::audit"]).await;
    assert_eq!(said.out.lines().next(), Some("shop::audit: 1 waiting, 0 running, 2 dead"));
    let row = &said.rows()[2];
    assert_eq!((row[0], row[1], row[2], row[3]), (&*late, "order:3", "0", "in"));

    let said = tool(&server, &["jobs", "shop::audit", "--state", "dead", "--most", "1"]).await;
    let row = &said.rows()[2];
    assert!([&*one, &*two].contains(&row[0]) && row[2] == "1", "{said:?}");
    assert!(said.out.contains("no stock\\u{7}"), "{said:?}");
    assert!(said.out.contains("dead of 2: go on with `--first 1`"), "{said:?}");

    let words = ["--json", "jobs", "shop::audit", "--state", "dead", "--first", "1"];
    let said = tool(&server, &words).await.json();
    assert_eq!((&said["dead"], &said["more"]), (&json!(2), &json!(false)));
    let call = &said["calls"][0];
    assert!(call["arguments"] == json!([1]) || call["arguments"] == json!([2]), "{call}");
    assert!(call["in_ms"].as_i64().unwrap() <= 0, "{call}");

    let said = tool(&server, &["jobs", "remove", "shop::audit", &two]).await;
    assert_eq!((said.code, said.out), (Some(0), format!("removed: {two}\n")));
    mended.store(true, Ordering::Relaxed);
    let said = tool(&server, &["--json", "jobs", "retry", "shop::audit", &one, &two]).await;
    assert_eq!(said.code, Some(1), "one of them is gone");
    let function = "shop::audit";
    assert_eq!(said.json(), json!({ "function": function, "retried": [one], "missing": [two] }));
    tool(&server, &["jobs", "remove", "shop::audit", &late]).await;
    eventually("all are done", IN_TIME, async || {
        let said = tool(&server, &["jobs"]).await;
        said.out == "nothing is deferred\n"
    })
    .await;
    locks.shutdown(IN_TIME).await.unwrap();
    working.await.unwrap().unwrap();
}

#[tokio::test]
async fn arguments_that_are_no_json_are_shown_as_they_are() {
    let server = Server::start();
    let mut admin = server.admin();
    admin.ask::<()>(&["HSET", "lm1:jobs:f", "id", "no json"]);
    admin.ask::<()>(&["ZADD", "lm1:wd:{lm1:jobs:f}", "1", "id", "2", "stray"]);
    let said = tool(&server, &["--json", "jobs", "f"]).await.json();
    assert_eq!(said["calls"][0]["arguments"], "no json");
    assert_eq!(said["calls"][1]["arguments"], "");
}
