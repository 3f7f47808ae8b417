//! Waiting for several keys while the server is down or slow.

use std::time::Instant;

use futures::future::select;
use lockmacro_runtime::{LockError, LockManager};
use lockmacro_tests::{Backend, Call, Fault, Proxy, Server, on, queue_of};
use tokio::time::timeout;

use crate::{
    IN_TIME, LONG_TTL, Locked, become_free, busy_key, has_keys, impatient, keys, lock, many, ms,
    served, two_managers, until_it_holds, waits_until,
};

const KEYS: [&str; 2] = ["order:a", "order:b"];

#[tokio::test]
async fn a_wait_outlasts_a_server_that_is_away() {
    let mut server = Server::start();
    let ours = impatient(&server.url(), ms(400)).await;
    server.kill();
    let mut waiter = Box::pin(many(&ours, KEYS).wait(LONG_TTL).acquire());
    timeout(ms(1_200), &mut waiter).await.expect_err("it waits");
    server.restart();
    served(waiter).await;
}

#[tokio::test]
async fn a_holder_of_some_keys_outlasts_an_outage_and_begins_again() {
    let mut server = Server::start();
    let ours = impatient(&server.url(), ms(400)).await;
    let theirs = LockManager::connect(&server.url()).await.expect("there");
    let _busy = lock(&theirs, KEYS[1]).acquire().await.expect("free");
    let mut waiter = Box::pin(many(&ours, KEYS).ttl(ms(600)).wait(LONG_TTL).acquire());
    let mut admin = server.admin();
    waits_until("it holds the first", &mut waiter, || admin.get(KEYS[0]).is_some()).await;
    server.kill();
    // Longer than it may hold what it has.
    timeout(ms(1_500), &mut waiter).await.expect_err("it waits");
    server.restart();
    served(waiter).await;
}

#[tokio::test]
async fn a_wait_ends_in_time_when_the_server_hangs() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let ours = impatient(&proxy.url(), ms(8_000)).await;
    proxy.stall(true);
    let start = Instant::now();
    let error = many(&ours, KEYS).wait(ms(300)).acquire().await.expect_err("it hangs");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    // One answer's time, and not the timeout.
    assert!(start.elapsed() < ms(6_000), "after {:?}", start.elapsed());
}

/// Each key is deleted as soon as the waiter holds it.
#[on(redis)]
async fn a_waiter_that_keeps_losing_keys_times_out(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<2>(backend).await;
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
}

#[on(redis, slots)]
async fn a_waiter_that_loses_a_key_releases_the_others(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<3>(backend).await;
    let mut admin = backend.admin().expect("a server");
    let busy = lock(&theirs, &keys[2]).acquire().await.expect("free");
    let waiter = many(&ours, &keys).ttl(ms(1_500)).wait(LONG_TTL).acquire();
    let mut waiter = until_it_holds(backend, &keys[1], waiter).await;
    admin.ask::<()>(&["SET", &keys[0], "php", "PX", "60000"]);
    let start = Instant::now();
    while !backend.is_free(&keys[1]).await {
        timeout(ms(10), &mut waiter).await.expect_err("two of them are busy");
        assert!(start.elapsed() < IN_TIME, "it holds what it cannot use");
    }
    drop(waiter);
    admin.ask::<()>(&["DEL", &keys[0]]);
    busy.release().await.expect("still held");
    become_free(backend, &keys).await;
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
    waits_until("it holds the first", &mut waiter, || admin.get(KEYS[0]).is_some()).await;
    let [first, second] = KEYS.map(queue_of);
    waits_until("it waits for the second", &mut waiter, || admin.ask(&["EXISTS", &second])).await;
    // If the waiter released the first key, this rival would get it.
    let mut rival = Box::pin(lock(&theirs, KEYS[0]).wait(LONG_TTL).acquire());
    let mut both = select(&mut waiter, &mut rival);
    waits_until("the rival is in the queue", &mut both, || admin.ask(&["EXISTS", &first])).await;
    let token = admin.get(KEYS[0]);
    // The next command about the first key is its renewal, a second after its grant.
    proxy.on_next(KEYS[0], Fault::CutCommand);
    waits_until("the renewal fails", &mut both, || proxy.orders_are_done()).await;
    let is_renewed = || admin.ttl(KEYS[0]).is_some_and(|left| left >= ms(2_300));
    waits_until("it is renewed", &mut both, is_renewed).await;
    assert_eq!(admin.get(KEYS[0]), token);
    busy.release().await.expect("still held");
    served(waiter).await;
    rival.await.expect("served").release().await.expect("still held");
}

/// The lease of a waiter counts from before its confirmation was sent.
#[on(redis)]
async fn a_confirmation_whose_answer_is_late_is_worth_less(backend: &Backend) {
    let proxy = backend.proxy();
    let ours = impatient(&proxy.url(), LONG_TTL).await;
    let (theirs, keys) = (backend.manager().await, keys::<2>(backend));
    let busy = lock(&theirs, &keys[1]).acquire().await.expect("free");
    let waiter = many(&ours, &keys).ttl(ms(90_000)).wait(LONG_TTL).acquire();
    let mut waiter = until_it_holds(backend, &keys[0], waiter).await;
    let mut admin = backend.admin().expect("a server");
    let queue = queue_of(&keys[1]);
    waits_until("it waits for the second", &mut waiter, || admin.ask(&["EXISTS", &queue])).await;
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
    let ours = impatient(&proxy.url(), LONG_TTL).await;
    // The scripts are loaded.
    many(&ours, KEYS).run(async { Locked::Ok(()) }).await.expect("free");
    let mut acquiring = Box::pin(many(&ours, KEYS).acquire());
    proxy.on_next("EVALSHA", Fault::HoldCommand(ms(1_000)));
    waits_until("its request is sent", &mut acquiring, || proxy.orders_are_done()).await;
    drop(acquiring);
    proxy.held_commands_arrive().await;
    let mut admin = server.admin();
    has_keys(&mut admin, 0).await;
}

/// Its answer did not come, it was asked again, and what was held before that was lost.
#[tokio::test]
async fn a_request_that_arrives_after_its_waiter_has_begun_again_leaves_no_entry_in_the_queue() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let ours = impatient(&proxy.url(), ms(800)).await;
    let theirs = LockManager::connect(&server.url()).await.expect("there");
    let (all, queue) = (["order:a", "order:b", "order:c"], "lm1:wq:{order:c}");
    let busy = lock(&theirs, "order:c").acquire().await.expect("free");
    // The others are asked for without joining the queue.
    let joins = move |call: &Call<'_>| call.names(queue) && !call.names("order:a");
    proxy.on_next_call(joins, Fault::HoldCommand(ms(2_000)));
    let mut waiter = Box::pin(many(&ours, all).ttl(ms(3_000)).wait(LONG_TTL).acquire());
    let mut admin = server.admin();
    waits_until("it has asked again", &mut waiter, || {
        proxy.orders_are_done() && admin.ask(&["EXISTS", queue])
    })
    .await;
    let token = admin.get("order:a");
    admin.ask::<()>(&["DEL", "order:a"]);
    waits_until("it has begun again", &mut waiter, || {
        admin.get("order:a").is_some_and(|now| Some(now) != token)
    })
    .await;
    let mut arrives = Box::pin(proxy.held_commands_arrive());
    while timeout(ms(5), &mut arrives).await.is_err() {
        timeout(ms(5), &mut waiter).await.expect_err("the last is busy");
    }
    let waits_once = || admin.ask::<u64>(&["ZCARD", queue]) == 1;
    waits_until("it waits once", &mut waiter, waits_once).await;
    busy.release().await.expect("still held");
    let guard = timeout(IN_TIME, waiter).await.expect("in time").expect("served");
    drop(guard);
    has_keys(&mut admin, 0).await;
}
