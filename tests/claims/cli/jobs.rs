//! Jobs that are shown, tried again and removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockmacro_runtime::LockError;
use lockmacro_runtime::defer::{DeferredFn, JobState, Worker, argument};
use serde_json::json;

use super::release::at_a_terminal;
use super::*;

/// Stores a call, as a busy function does.
async fn put(locks: &LockManager, function: &DeferredFn<(u64,)>, key: &str, number: u64) -> String {
    let held = hold(locks, key).await;
    let busy = Lock::new(key).manager(locks).acquire().await.expect_err("it is held");
    let deferred = function.clone().manager(locks).defer(busy, (number,)).await;
    held.release().await.expect("released");
    match deferred {
        LockError::Deferred { id, .. } => id.into(),
        other => panic!("not deferred: {other}"),
    }
}

async fn dead(locks: &LockManager, function: &str) -> usize {
    let page = locks.job_queue().list(function.into(), JobState::Dead, 0, 0).await.expect("listed");
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
    let late = put(&locks, &function.delay(LONG_TTL), "order:3", 3).await;

    let said = tool(&server, &["jobs"]).await;
    assert_eq!(said.rows()[0], ["FUNCTION", "WAITING", "RUNNING", "DEAD"], "{said:?}");
    assert_eq!(said.rows()[1], ["shop::audit", "1", "0", "2"]);

    let said = tool(&server, &["jobs", "shop::audit"]).await;
    assert_eq!(said.out.lines().next(), Some("shop::audit: 1 waiting, 0 running, 2 dead"));
    let row = &said.rows()[2];
    assert_eq!(row[..5], [&*late, "order:3", "0", "0", "in"]);

    let said = tool(&server, &["jobs", "shop::audit", "--state", "dead", "--limit", "1"]).await;
    let row = &said.rows()[2];
    assert!([&*one, &*two].contains(&row[0]) && row[2..4] == ["1", "0"], "{said:?}");
    assert!(said.out.contains("no stock\\u{7}"), "{said:?}");
    assert!(said.out.contains("dead of 2: go on with `--first 1`"), "{said:?}");

    let words = ["--json", "jobs", "shop::audit", "--state", "dead", "--first", "1"];
    let said = tool(&server, &words).await.json();
    assert_eq!((&said["dead"], &said["truncated"]), (&json!(2), &json!(false)));
    let job = &said["jobs"][0];
    assert!(job["arguments"] == json!([1]) || job["arguments"] == json!([2]), "{job}");
    assert!(job["in_ms"].as_i64().unwrap() <= 0, "{job}");

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
    assert_eq!(said["jobs"][0]["arguments"], "no json");
    assert_eq!(said["jobs"][1]["arguments"], "");
}

/// Writes dead jobs of the function `f` by hand.
fn write_dead(server: &Server, ids: &[&str]) {
    let mut admin = server.admin();
    for id in ids {
        let script = format!(
            "redis.call('HSET', 'lm1:jobs:f', '{id}', '[1]', '{id}#k', 'k', '{id}#n', '1') \
             return redis.call('ZADD', 'lm1:wx:{{lm1:jobs:f}}', 1, '{id}')"
        );
        admin.ask::<()>(&["EVAL", &script, "0"]);
    }
}

#[tokio::test]
async fn all_dead_letters_are_tried_again_or_removed_when_it_is_expected() {
    let server = Server::start();
    write_dead(&server, &["one", "two", r"\255"]);
    let refused = tool(&server, &["jobs", "remove", "f", "--all-dead"]).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("--yes"), "{refused:?}");
    let said = at_a_terminal(&server, &["jobs", "remove", "f", "--all-dead"], "g\n").await;
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("3 dead jobs of `f` are removed for good"), "{said:?}");
    for words in [&["jobs", "remove", "f"][..], &["jobs", "retry", "f", "one", "--all-dead"]] {
        let said = tool(&server, words).await;
        assert_eq!(said.code, Some(2), "{said:?}");
    }
    let rows = tool(&server, &["jobs"]).await;
    assert_eq!(rows.rows()[1], ["f", "0", "0", "3"], "nothing was done");

    let said = tool(&server, &["jobs", "remove", "f", "--all-dead", "--yes"]).await;
    assert_eq!((said.code, &*said.out), (Some(0), "removed: 3 dead jobs of f\n"));
    let more: Vec<_> = (0..1_005).map(|nth| format!("id{nth}")).collect();
    write_dead(&server, &more.iter().map(String::as_str).collect::<Vec<_>>());
    let said = at_a_terminal(&server, &["--json", "jobs", "retry", "f", "--all-dead"], "f\n").await;
    assert!(said.err.contains("1005 dead jobs of `f` are tried again"), "{said:?}");
    assert_eq!(said.code, Some(0));
    let document: Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!(document, json!({ "function": "f", "retried": 1_005 }));
    let rows = tool(&server, &["jobs"]).await;
    assert_eq!(rows.rows()[1], ["f", "1005", "0", "0"]);
    let said = tool(&server, &["jobs", "retry", "f", "--all-dead"]).await;
    assert_eq!((said.code, &*said.out), (Some(0), "retried: 0 dead jobs of f\n"));
}

#[tokio::test]
async fn the_jobs_of_an_unknown_function_are_an_error() {
    let server = Server::start();
    let said = tool(&server, &["jobs", "typo"]).await;
    assert_eq!((said.code, &*said.out), (Some(1), "`typo` has no jobs\n"));
    let said = tool(&server, &["jobs", "typo", "--json"]).await;
    assert_eq!((said.code, &said.json()["waiting"]), (Some(1), &json!(0)));
    // Of which function is not said.
    for words in [["jobs", "--state", "dead"], ["jobs", "--first", "1"], ["jobs", "--limit", "1"]] {
        let said = tool(&server, &words).await;
        assert_eq!(said.code, Some(2), "{said:?}");
    }
    write_dead(&server, &["one"]);
    let far = ["jobs", "f", "--state", "dead", "--first", "9223372036854775807"];
    let said = tool(&server, &far).await;
    assert_eq!((said.code, &*said.out), (Some(0), "f: 0 waiting, 0 running, 1 dead\n"));
}
