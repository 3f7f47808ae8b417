//! Waiting for several keys while the server is down or slow.

use std::time::Instant;

use lockmacro_runtime::{LockError, LockManager};
use lockmacro_tests::{Backend, Call, Fault, Proxy, Server, eventually, queue_of};
use tokio::time::timeout;

use crate::{
    IN_TIME, LONG_TTL, Locked, become_free, busy_key, keys, lock, many, ms, until_it_holds,
};

const KEYS: [&str; 2] = ["order:a", "order:b"];

#[tokio::test]
async fn a_wait_outlasts_a_server_that_is_away() {
    let mut server = Server::start();
    let ours = LockManager::builder().timeout(ms(400)).connect(&server.url()).await;
    let ours = ours.expect("there");
    server.kill();
    let mut waiter = Box::pin(many(&ours, KEYS).wait(LONG_TTL).acquire());
    timeout(ms(1_200), &mut waiter).await.expect_err("it waits");
    server.restart();
    let guard = timeout(IN_TIME, waiter).await.expect("in time").expect("served");
    guard.release().await.expect("still held");
}

#[tokio::test]
async fn a_holder_of_some_keys_outlasts_an_outage_and_begins_again() {
    let mut server = Server::start();
    let ours = LockManager::builder().timeout(ms(400)).connect(&server.url()).await;
    let (ours, theirs) = (ours.expect("there"), LockManager::connect(&server.url()).await);
    let theirs = theirs.expect("there");
    let _busy = lock(&theirs, KEYS[1]).acquire().await.expect("free");
    let mut waiter = Box::pin(many(&ours, KEYS).ttl(ms(600)).wait(LONG_TTL).acquire());
    let mut admin = server.admin();
    while admin.get(KEYS[0]).is_none() {
        timeout(ms(5), &mut waiter).await.expect_err("the second is busy");
    }
    server.kill();
    // Longer than it may hold what it has.
    timeout(ms(1_500), &mut waiter).await.expect_err("it waits");
    server.restart();
    let guard = timeout(IN_TIME, waiter).await.expect("in time").expect("served");
    guard.release().await.expect("still held");
}

#[tokio::test]
async fn a_wait_ends_in_time_when_the_server_hangs() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let ours = LockManager::builder().timeout(ms(8_000)).connect(&proxy.url()).await;
    let ours = ours.expect("there");
    proxy.stall(true);
    let start = Instant::now();
    let error = many(&ours, KEYS).wait(ms(300)).acquire().await.expect_err("it hangs");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    // One answer's time, and not the timeout.
    assert!(start.elapsed() < ms(6_000), "after {:?}", start.elapsed());
}

/// Each key is deleted as soon as the waiter holds it.
#[tokio::test]
async fn a_waiter_that_keeps_losing_keys_times_out() {
    let backend = Backend::redis();
    let (ours, theirs) = (backend.manager().await, backend.manager().await);
    let keys = keys::<2>(&backend);
    let mut admin = backend.admin().expect("a server");
    let busy = lock(&theirs, &keys[1]).acquire().await.expect("free");
    let mut waiter = Box::pin(many(&ours, &keys).ttl(ms(300)).wait(ms(1_000)).acquire());
    let start = Instant::now();
    let error = loop {
        if let Ok(waited) = timeout(ms(5), &mut waiter).await {
            break waited.expect_err("the second was busy");
        }
        admin.ask::<()>(&["DEL", &keys[0]]);
        assert!(start.elapsed() < IN_TIME, "it never ends");
    };
    assert!(matches!(error, LockError::TimedOut { .. }), "{error}");
    assert_eq!(busy_key(&error), keys[1]);
    busy.release().await.expect("still held");
    backend.keeps_nothing().await;
}

#[tokio::test]
async fn a_waiter_that_loses_a_key_releases_the_others() {
    for backend in [Backend::redis(), Backend::slots().await] {
        let (ours, theirs) = (backend.manager().await, backend.manager().await);
        let keys = keys::<3>(&backend);
        let mut admin = backend.admin().expect("a server");
        let busy = lock(&theirs, &keys[2]).acquire().await.expect("free");
        let waiter = many(&ours, &keys).ttl(ms(1_500)).wait(LONG_TTL).acquire();
        let mut waiter = until_it_holds(&backend, &keys[1], waiter).await;
        admin.ask::<()>(&["SET", &keys[0], "php", "PX", "60000"]);
        let start = Instant::now();
        while !backend.is_free(&keys[1]).await {
            timeout(ms(10), &mut waiter).await.expect_err("two of them are busy");
            assert!(start.elapsed() < IN_TIME, "it holds what it cannot use");
        }
        drop(waiter);
        admin.ask::<()>(&["DEL", &keys[0]]);
        busy.release().await.expect("still held");
        become_free(&backend, &keys).await;
        backend.keeps_nothing().await;
    }
}

#[tokio::test]
async fn a_renewal_that_fails_once_loses_nothing() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let ours = LockManager::connect(&proxy.url()).await.expect("there");
    let theirs = LockManager::connect(&server.url()).await.expect("there");
    let busy = lock(&theirs, KEYS[1]).acquire().await.expect("free");
    let mut waiter = Box::pin(many(&ours, KEYS).ttl(ms(3_000)).wait(LONG_TTL).acquire());
    let mut admin = server.admin();
    while admin.get(KEYS[0]).is_none() {
        timeout(ms(5), &mut waiter).await.expect_err("the second is busy");
    }
    while admin.ask::<u64>(&["EXISTS", "lm1:wq:{order:b}"]) == 0 {
        timeout(ms(5), &mut waiter).await.expect_err("the second is busy");
    }
    // If the waiter released the first key, this rival would get it.
    let mut rival = Box::pin(lock(&theirs, KEYS[0]).wait(LONG_TTL).acquire());
    while admin.ask::<u64>(&["EXISTS", "lm1:wq:{order:a}"]) == 0 {
        timeout(ms(5), &mut waiter).await.expect_err("the second is busy");
        timeout(ms(5), &mut rival).await.expect_err("the first is held");
    }
    let token = admin.get(KEYS[0]);
    // The next command about the first key is its renewal, a second after its grant.
    proxy.on_next(KEYS[0], Fault::CutCommand);
    while !proxy.orders_are_done() {
        timeout(ms(5), &mut waiter).await.expect_err("the second is busy");
    }
    let start = Instant::now();
    while admin.ttl(KEYS[0]).is_none_or(|left| left < ms(2_300)) {
        timeout(ms(5), &mut waiter).await.expect_err("the second is busy");
        timeout(ms(5), &mut rival).await.expect_err("the first is held");
        assert!(start.elapsed() < IN_TIME, "it is not renewed");
    }
    assert_eq!(admin.get(KEYS[0]), token);
    busy.release().await.expect("still held");
    let guard = timeout(IN_TIME, waiter).await.expect("in time").expect("served");
    guard.release().await.expect("still held");
    rival.await.expect("served").release().await.expect("still held");
}

/// The lease of a waiter counts from before its confirmation was sent.
#[tokio::test]
async fn a_confirmation_whose_answer_is_late_is_worth_less() {
    let backend = Backend::redis();
    let proxy = backend.proxy();
    let builder = LockManager::builder().timeout(LONG_TTL);
    let ours = builder.connect(&proxy.url()).await.expect("there");
    let theirs = backend.manager().await;
    let keys = keys::<2>(&backend);
    let busy = lock(&theirs, &keys[1]).acquire().await.expect("free");
    let waiter = many(&ours, &keys).ttl(ms(90_000)).wait(LONG_TTL).acquire();
    let mut waiter = until_it_holds(&backend, &keys[0], waiter).await;
    let mut admin = backend.admin().expect("a server");
    let queue = queue_of(&keys[1]);
    while admin.ask::<u64>(&["EXISTS", &queue]) == 0 {
        timeout(ms(5), &mut waiter).await.expect_err("the second is busy");
    }
    // Only the confirmation is about both: the first is renewed, and the second is asked for.
    let both = keys.clone();
    let confirms = move |call: &Call<'_>| both.iter().all(|key| call.names(key));
    proxy.on_next_call(confirms, Fault::DelayReply(ms(600)));
    busy.release().await.expect("still held");
    let guard = timeout(IN_TIME, waiter).await.expect("in time").expect("served");
    assert!(proxy.orders_are_done());
    assert!(guard.remaining() < ms(88_700), "{:?}", guard.remaining());
    guard.release().await.expect("still held");
}

/// It was dropped while its request was in flight.
#[tokio::test]
async fn a_request_that_arrives_when_nobody_waits_any_more_leaves_no_key() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let ours = LockManager::builder().timeout(LONG_TTL).connect(&proxy.url()).await.expect("there");
    // The scripts are loaded.
    many(&ours, KEYS).run(async { Locked::Ok(()) }).await.expect("free");
    let mut acquiring = Box::pin(many(&ours, KEYS).acquire());
    proxy.on_next("EVALSHA", Fault::HoldCommand(ms(1_000)));
    while !proxy.orders_are_done() {
        timeout(ms(1), &mut acquiring).await.expect_err("it is held");
    }
    drop(acquiring);
    proxy.held_commands_arrive().await;
    let mut admin = server.admin();
    let mut is_empty = || std::future::ready(admin.keys().is_empty());
    eventually("nothing is left", IN_TIME, &mut is_empty).await;
}

/// Its answer did not come, it was asked again, and what was held before that was lost.
#[tokio::test]
async fn a_request_that_arrives_after_its_waiter_has_begun_again_leaves_no_entry_in_the_queue() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let ours = LockManager::builder().timeout(ms(800)).connect(&proxy.url()).await.expect("there");
    let theirs = LockManager::connect(&server.url()).await.expect("there");
    let (all, queue) = (["order:a", "order:b", "order:c"], "lm1:wq:{order:c}");
    let busy = lock(&theirs, "order:c").acquire().await.expect("free");
    // The others are asked for without joining the queue.
    let joins = move |call: &Call<'_>| call.names(queue) && !call.names("order:a");
    proxy.on_next_call(joins, Fault::HoldCommand(ms(2_000)));
    let mut waiter = Box::pin(many(&ours, all).ttl(ms(3_000)).wait(LONG_TTL).acquire());
    let mut admin = server.admin();
    while !proxy.orders_are_done() || admin.ask::<u64>(&["EXISTS", queue]) == 0 {
        timeout(ms(5), &mut waiter).await.expect_err("the last is busy");
    }
    let token = admin.get("order:a");
    admin.ask::<()>(&["DEL", "order:a"]);
    while admin.get("order:a").is_none() || admin.get("order:a") == token {
        timeout(ms(5), &mut waiter).await.expect_err("the last is busy");
    }
    let mut arrives = Box::pin(proxy.held_commands_arrive());
    while timeout(ms(5), &mut arrives).await.is_err() {
        timeout(ms(5), &mut waiter).await.expect_err("the last is busy");
    }
    let start = Instant::now();
    while admin.ask::<u64>(&["ZCARD", queue]) != 1 {
        timeout(ms(5), &mut waiter).await.expect_err("the last is busy");
        assert!(start.elapsed() < IN_TIME, "it waits twice");
    }
    busy.release().await.expect("still held");
    let guard = timeout(IN_TIME, waiter).await.expect("in time").expect("served");
    drop(guard);
    let mut is_empty = || std::future::ready(admin.keys().is_empty());
    eventually("nothing is left", IN_TIME, &mut is_empty).await;
}
