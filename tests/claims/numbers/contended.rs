//! Callers that had to wait behind somebody, and behind whom.

use std::env;
use std::process::Command;
use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::times::{SOON, ms};
use lockmacro_tests::{Backend, Server, eventually, within};

use crate::{lock, value};

fn outcomes(name: &str) -> [f64; 4] {
    ["acquired", "waited", "passed", "timed_out"].map(|outcome| {
        value("lockmacro_acquisitions_total", &[("name", name), ("outcome", outcome)])
    })
}

/// How often callers of `name` have waited for `holder`, and for how long.
fn waited(name: &str, holder: &str) -> (f64, f64) {
    let labels = [("name", name), ("holder", holder)];
    let part = |part| value(&format!("lockmacro_contended_wait_seconds_{part}"), &labels);
    (part("count"), part("sum"))
}

/// `waiter`, which has this name, waits while `holder` holds its lock for some 300 ms.
async fn waits(holder: Lock, waiter: Lock, name: &'static str) {
    let guard = holder.acquire().await.expect("free");
    let waiting = tokio::spawn(waiter.name(name).wait(SOON).acquire());
    let is_there = async || value("lockmacro_waiting", &[("name", name)]) == 1.0;
    eventually("it waits", SOON, is_there).await;
    // The waiter has waited at least this long, and its first question was answered: had the lock
    // been free by then, it had waited for nobody.
    tokio::time::sleep(ms(300)).await;
    guard.release().await.expect("ours");
    waiting.await.expect("no panic").expect("in time").release().await.expect("ours");
}

#[tokio::test]
async fn a_free_lock_waits_for_nobody() {
    let locks = LockManager::isolated_memory();
    for _ in 0..3 {
        let free = lock(&locks, "free", "free").wait(SOON).acquire().await.expect("free");
        free.release().await.expect("ours");
    }
    assert_eq!(outcomes("free"), [3.0, 0.0, 0.0, 0.0]);
    assert_eq!(value("lockmacro_contended_wait_seconds_count", &[("name", "free")]), 0.0);
}

#[tokio::test]
async fn a_lock_that_is_passed_on_inside_the_process_is_told_apart() {
    let locks = LockManager::builder().turn(ms(900)).isolated_memory();
    waits(lock(&locks, "k", "passing"), lock(&locks, "k", ""), "passed-to").await;
    assert_eq!(outcomes("passed-to"), [0.0, 0.0, 1.0, 0.0]);
    let (count, seconds) = waited("passed-to", "passing");
    assert!(count == 1.0 && (0.05..5.0).contains(&seconds), "{count} {seconds}");
}

#[tokio::test]
async fn a_wait_is_counted_under_the_function_that_held_the_lock_in_another_process() {
    let server = Server::start();
    let (one, other) = (within(SOON, &server.url()).await, within(SOON, &server.url()).await);
    waits(lock(&one, "k", "shop::pays"), lock(&other, "k", ""), "behind").await;
    assert_eq!(outcomes("behind"), [0.0, 1.0, 0.0, 0.0]);
    let (count, seconds) = waited("behind", "shop::pays");
    assert!(count == 1.0 && (0.05..5.0).contains(&seconds), "{count} {seconds}");

    // Those that belong to no queue.
    waits(lock(&one, "k", "exclusive"), lock(&other, "k", "").shared(), "sharing").await;
    assert_eq!((outcomes("sharing")[1], waited("sharing", "exclusive").0), (1.0, 1.0));
    let several = Lock::many(["j", "k"]).manager(&other);
    waits(lock(&one, "k", "first"), several, "several").await;
    assert_eq!((outcomes("several")[1], waited("several", "first").0), (1.0, 1.0));
}

#[tokio::test]
async fn a_wait_for_one_of_several_keys_is_counted_where_the_server_takes_one_at_a_time() {
    let backend = Backend::slots().await;
    let (one, other, key) = backend.two_managers("k").await;
    let several = Lock::many([backend.key("j"), key.clone()]).manager(&other);
    waits(lock(&one, &key, "of-a-slot"), several, "of-slots").await;
    assert_eq!((outcomes("of-slots")[1], waited("of-slots", "of-a-slot").0), (1.0, 1.0));
}

#[tokio::test]
async fn an_owner_without_a_name_of_this_process_makes_no_label() {
    let server = Server::start();
    let builder = LockManager::builder().timeout(SOON).label("ci:1:job-4711");
    let job = builder.connect(&server.url()).await.expect("there");
    let other = within(SOON, &server.url()).await;
    waits(lock(&job, "k", ""), lock(&other, "k", ""), "behind-a-job").await;
    assert_eq!((waited("behind-a-job", "").0, waited("behind-a-job", "job-4711").0), (1.0, 0.0));
}

#[tokio::test]
async fn a_turn_that_is_over_is_no_pass() {
    let locks = LockManager::builder().turn(Duration::ZERO).isolated_memory();
    waits(lock(&locks, "k", "ending"), lock(&locks, "k", ""), "after-it").await;
    assert_eq!(outcomes("after-it"), [0.0, 1.0, 0.0, 0.0]);
    assert_eq!(waited("after-it", "ending").0, 1.0);
}

#[tokio::test]
async fn a_wait_in_vain_has_its_holder_too() {
    let locks = LockManager::isolated_memory();
    let _guard = lock(&locks, "k", "stuck").acquire().await.expect("free");
    let error = lock(&locks, "k", "in-vain").wait(ms(30)).acquire().await.expect_err("held");
    assert!(matches!(error, LockError::TimedOut { .. }), "{error:?}");
    assert_eq!(outcomes("in-vain"), [0.0, 0.0, 0.0, 1.0]);
    assert_eq!(waited("in-vain", "stuck").0, 1.0);
}

/// The size of a stack for which there is no memory, so that no thread can be started.
const NO_THREADS: (&str, &str) = ("RUST_MIN_STACK", "1000000000000000");

#[tokio::test]
async fn a_grant_that_no_thread_can_renew_is_an_error_and_not_acquired() {
    if env::var_os(NO_THREADS.0).is_none() {
        let name = "contended::a_grant_that_no_thread_can_renew_is_an_error_and_not_acquired";
        // With one thread, the test runs on the main thread.
        let mut itself = Command::new(env::current_exe().expect("this program"));
        itself.args(["--exact", name, "--test-threads=1"]).env(NO_THREADS.0, NO_THREADS.1);
        let out = itself.output().expect("it starts");
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let locks = LockManager::builder().turn(ms(900)).isolated_memory();
    let error = lock(&locks, "k", "granted").renew().acquire().await.expect_err("no thread");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    let guard = lock(&locks, "j", "holder").acquire().await.expect("free");
    let waiting = tokio::spawn(lock(&locks, "j", "next").renew().wait(SOON).acquire());
    let is_there = async || value("lockmacro_waiting", &[("name", "next")]) == 1.0;
    eventually("it waits", SOON, is_there).await;
    guard.release().await.expect("ours");
    waiting.await.expect("no panic").expect_err("no thread");
    for name in ["granted", "next"] {
        let errors = [("name", name), ("outcome", "error")];
        let refusals = [("name", name), ("reason", "unavailable")];
        assert_eq!(outcomes(name), [0.0; 4], "{name}");
        assert_eq!(value("lockmacro_acquisitions_total", &errors), 1.0, "{name}");
        assert_eq!(value("lockmacro_refusals_total", &refusals), 1.0, "{name}");
    }
}
