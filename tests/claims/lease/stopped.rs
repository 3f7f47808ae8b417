//! A client process that is stopped past its lease, and one that dies.

use std::future::ready;
use std::time::Instant;

use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::{Server, eventually};
use rusqlite::Connection;

use crate::{SOON, connect, holder, lock, ms, next, outlast};

const KEY: &str = "order:42";

#[tokio::test]
async fn a_process_that_was_stopped_past_its_lease_takes_no_further_step() {
    let server = Server::start();
    let rival = connect(&server.url()).await;
    // Once it is stopped in the middle of its lease, once just before a renewal, …
    let renewed = [0, 140, 280, 420].map(|pause| ("step", pause, "lost NotRenewed"));
    for (what, pause, lost) in [("hold", 0, "lost Expired")].into_iter().chain(renewed) {
        let process = holder(&[what, &server.url(), KEY, "1200"]);
        assert_eq!(process.next_line(), "held");
        std::thread::sleep(ms(pause));
        // A step takes 100 ms of waiting: right after one it is stopped in the middle of that.
        assert_eq!(process.next_line(), "step");
        process.stop();
        let guard = next(&rival, KEY).await;
        let before = process.lines();
        assert!(before.iter().all(|line| line == "step"), "{before:?}");
        process.go_on();
        assert_eq!(process.next_line(), lost, "its first word after going on");
        guard.check().expect("nobody took it away");
        guard.release().await.expect("still ours");
    }
}

#[tokio::test]
async fn a_process_that_was_stopped_for_less_than_its_lease_goes_on() {
    let server = Server::start();
    let process = holder(&["step", &server.url(), KEY, "6000"]);
    assert_eq!(process.next_line(), "held");
    let mut admin = server.admin();
    for _ in 0..2 {
        process.stop();
        let before = process.lines();
        assert!(before.iter().all(|line| line == "step"), "{before:?}");
        // Past the moment when it is due to be renewed, far from its end.
        outlast(ms(2_000)).await;
        let left = admin.ttl(KEY).expect("held");
        process.go_on();
        let renewed = || ready(admin.ttl(KEY).is_some_and(|now| now > left));
        eventually("what was due meanwhile is renewed", SOON, renewed).await;
        assert_eq!(process.next_line(), "step");
    }
}

#[tokio::test]
async fn a_process_that_was_stopped_past_its_lease_writes_nothing_any_more() {
    let server = Server::start();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("stock.sqlite");
    let database = Connection::open(&path).expect("a database");
    database
        .execute_batch(
            "CREATE TABLE stock (id INTEGER PRIMARY KEY, value TEXT, fence INTEGER NOT NULL);
             INSERT INTO stock VALUES (7, 'none', 0);",
        )
        .expect("a table");
    let rival = connect(&server.url()).await;
    let mut admin = server.admin();

    let path = path.to_str().expect("a path that is text");
    let mut process = holder(&["write", &server.url(), KEY, "500", path]);
    let held = process.next_line();
    let old: u64 = held.strip_prefix("held ").expect("held").parse().expect("a fence");
    process.tell("first");
    assert_eq!(process.next_line(), "1 1", "written while it was held");

    process.stop();
    let next = lock(&rival, KEY).wait(2 * SOON).acquire_fenced();
    let (guard, fences) = next.await.expect("free at the end of the lease");
    let fence = fences[0];
    assert!(u64::from(fence) > old);
    let number = fence.to_string();
    let script = lockmacro_runtime::fence::WRITE;
    assert_eq!(admin.ask::<u32>(&["EVAL", script, "1", "stock:7", &number, "rival"]), 1);
    let update = "UPDATE stock SET value = 'rival', fence = ?1 WHERE id = 7 AND fence <= ?1";
    assert_eq!(database.execute(update, [i64::from(fence)]), Ok(1));

    process.go_on();
    process.tell("stale");
    assert_eq!(process.next_line(), "0 0", "refused by both");
    assert_eq!(admin.ask::<String>(&["HGET", "stock:7", "value"]), "rival");
    let value: String = database
        .query_row("SELECT value FROM stock WHERE id = 7", [], |row| row.get(0))
        .expect("a row");
    assert_eq!(value, "rival");
    guard.release().await.expect("still ours");
}

#[tokio::test]
async fn a_killed_process_frees_its_renewed_lock_at_its_ttl() {
    let server = Server::start();
    let rival = connect(&server.url()).await;
    let process = holder(&["step", &server.url(), KEY, "1500"]);
    assert_eq!(process.next_line(), "held");
    // Past its first ttl: it is renewed.
    for _ in 0..16 {
        assert_eq!(process.next_line(), "step");
    }
    drop(process);
    let (killed, left) = (Instant::now(), server.admin().ttl(KEY).expect("held, with an end"));
    let guard = next(&rival, KEY).await;
    let free = killed.elapsed();
    assert!(free + ms(2) >= left && free < left + ms(1_200), "{free:?} of {left:?}");
    guard.release().await.expect("released");
}
