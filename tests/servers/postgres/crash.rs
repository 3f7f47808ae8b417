//! Servers that stop without a word, and come back with what they have written.

use std::error::Error as _;

use futures::future::join_all;
use lockmacro_runtime::{Lock, UnavailableReason};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::Postgres;
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT, ms};
use tokio::time::timeout;

use crate::{Locked, Room, TIMEOUT, holder, is_renewed, is_waited_for, lock, manager};

#[tokio::test]
async fn a_held_lock_and_its_fence_survive_a_crash_and_waiters_are_served_after_it() {
    let mut server = Postgres::start().await;
    let (ours, theirs) = (manager(&server.url()).await, manager(&server.url()).await);
    // Longer than a loaded machine needs for the start, and short enough to be renewed soon.
    let held = Lock::new("crash").ttl(ms(9_000)).renew().manager(&ours);
    let (guard, first) = held.acquire_fenced().await.expect("free");
    let room = Room::default();
    room.visit(first[0]).await;
    let client = server.connect().await;
    let before = holder(&client, "crash").await.expect("it is held");
    let waiting = join_all((0..3).map(|_| async {
        let waiter = lock(&theirs, "crash").wait(LONG_TTL).acquire_fenced();
        let (guard, fences) = waiter.await.expect("its turn");
        room.visit(fences[0]).await;
        guard.release().await.expect("still held");
    }));
    let crash = async {
        is_waited_for(&client, "crash").await;
        server.stop_at_once();
        server.restart().await;
        let client = server.connect().await;
        let after = holder(&client, "crash").await.expect("it is still held");
        assert_eq!(after.0, before.0, "the same holder");
        let fence = "SELECT $1 BETWEEN first AND fence FROM lm1.fence WHERE key = 'crash'";
        let fence = client.query_one(fence, &[&i64::from(first[0])]).await.expect("it is kept");
        assert!(fence.get::<_, bool>(0), "it is that of the holder");
        is_renewed(&client, "crash").await;
        assert!(guard.is_held() && room.visits() == 1, "nobody else has it");
        is_waited_for(&client, "crash").await;
        guard.release().await.expect("still held");
    };
    let all = async { tokio::join!(waiting, crash) };
    timeout(LONG_TTL, all).await.expect("the waiters are served");
    assert_eq!(room.visits(), 4);
    server.keeps_nothing("crash").await;
}

#[tokio::test]
async fn callers_of_a_crashed_server_are_told_so_and_served_when_it_is_back() {
    let mut server = Postgres::start().await;
    let manager = lockmacro_tests::within(TIMEOUT, &server.url()).await;
    let patient = crate::manager(&server.url()).await;
    server.stop_at_once();
    let error = crate::refusal(&manager, "down").await;
    assert_eq!(error.reason(), Some(UnavailableReason::Refused), "{error:?}");
    assert!(error.source().is_some_and(|source| source.is::<tokio_postgres::Error>()));
    let waiting = lock(&patient, "down").wait(LONG_TTL).run(async { Locked::Ok(7) });
    let (result, ()) = tokio::join!(waiting, server.restart());
    assert_eq!(result, Ok(7));
    let again = || async { lock(&manager, "down").run(async { Locked::Ok(8) }).await == Ok(8) };
    lockmacro_tests::eventually("it works again", TEST_TIMEOUT, again).await;
    server.keeps_nothing("down").await;
}
