//! A release that arrives late deletes no lock of a later caller.

use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::{Fault, Proxy, in_time, with_replicas};

use crate::*;

/// Longer than the manager takes to give a connection without answers up.
const HELD_BACK: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_release_of_a_lock_that_too_few_replicas_had_ends_no_later_lock() {
    let servers = with_replicas(1).await;
    let proxy = Proxy::to(servers[0].port());
    let builder = LockManager::builder().timeout(HELD_BACK / 2).replicated(1, ms(300));
    let manager = builder.connect(&proxy.url()).await.expect("the server is there");
    let holder = plain(&servers[0]).await;
    // The scripts are loaded, and the connections open.
    lock(&manager).acquire().await.expect("free").release().await.expect("held");

    let guard = lock(&holder).acquire().await.expect("free");
    let first = tokio::spawn(lock(&manager).wait(FAILOVER_TTL).acquire());
    are_queued(&servers[0], 1).await;
    servers[1].pause();
    // The limit of an exclusive request is 1, and a release has none.
    let releases = |call: &Call<'_>| call.names(KEY) && call.names("5000") && !call.names("1");
    proxy.on_next_call(releases, Fault::HoldLastCommand(HELD_BACK));
    guard.release().await.expect("held");
    let is_sent = || std::future::ready(proxy.orders_are_done());
    eventually("the first caller's lock is released", FAILOVER, is_sent).await;
    servers[1].resume();
    // It wants a fence, which the request of the first caller does not ask for.
    let fenced = tokio::spawn(lock(&manager).wait(FAILOVER_TTL).acquire_fenced());

    let guard = match in_time(first).await.expect("no panic") {
        Ok(guard) => guard,
        Err(_) => in_time(fenced).await.expect("no panic").expect("served").0,
    };
    proxy.held_commands_arrive().await;
    assert!(servers[0].admin().get(KEY).is_some(), "the body runs without its lock");
    assert_eq!(guard.check(), Ok(()));
    assert!(lock(&holder).acquire().await.expect_err("taken").is_busy());
}
