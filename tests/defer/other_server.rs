//! Calls that are kept on another server than the locks.

use lockmacro_tests::{Server, log};

use super::*;

/// That server may be lost by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_server_of_the_queue_is_logged_with_its_address() {
    log::start();
    let (locks_at, mut calls_at) = (Server::start(), Server::start());
    let builder = || LockManager::builder().timeout(SHORT_DELAY * 5);
    let calls = builder().connect(&calls_at.url()).await.expect("there");
    let locks = builder().deferrer(calls.deferrer()).connect(&locks_at.url()).await;
    let locks = locks.expect("there");
    let function = noting("counted", &Calls::default());
    let working = tokio::spawn(worker(&locks, &function).run());
    count(&locks, "counted", JobState::Waiting).await;
    calls_at.kill();
    let place = format!("127.0.0.1:{}", calls_at.port());
    let lines = |words: &str| {
        let log = log::so_far();
        let ours = log.lines().filter(|line| line.contains(words) && line.contains(&place));
        ours.map(str::to_owned).collect::<Vec<_>>()
    };
    eventually("a worker could not take calls", TEST_TIMEOUT, || {
        std::future::ready(lines("deferred calls could not be taken").len() > 1)
    })
    .await;
    calls_at.restart();
    eventually("it is back", TEST_TIMEOUT, || {
        std::future::ready(lines("lock server back").len() == 1)
    })
    .await;
    assert_eq!(lines("lock server lost").len(), 1);
    locks.shutdown(TEST_TIMEOUT).await.expect("nothing is held");
    working.await.expect("no panic").expect("it was stopped");
}
