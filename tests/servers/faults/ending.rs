//! Keys, connections and threads that a manager leaves after a shutdown.

use std::future::ready;
use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::{
    Cluster, Fault, Polled, Proxy, Server, drop_after_polls, eventually, in_time,
};

use crate::{LONG_TTL, TEST_TIMEOUT, TIMEOUT, lock, ms, through, works};

const MANAGERS: usize = 10;
/// All that a shutdown leaves is gone within 6 s; here with some more for a loaded machine.
const GONE_WITHIN: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_that_was_shut_down_leaves_no_thread_and_no_connection_for_a_ttl() {
    in_time(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        for _ in 0..MANAGERS {
            let manager = crate::within(TIMEOUT, &proxy.url()).await;
            works(&manager).await;
            // It is not known whether this one arrives.
            proxy.on_next("SET", Fault::LoseReply);
            let dropped = Lock::new("dropped").ttl(LONG_TTL).manager(&manager);
            let asking = tokio::spawn(dropped.acquire());
            eventually("it was sent", LONG_TTL, async || proxy.orders_are_done()).await;
            asking.abort();
            let _ = asking.await;
            manager.shutdown(LONG_TTL).await.expect("nothing is held");
        }
        eventually("all have gone", GONE_WITHIN, async || connections(&server) == 0).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_arrives_soon_after_a_shutdown_is_released() {
    in_time(async {
        let (server, proxy, manager) = through(TIMEOUT).await;
        works(&manager).await;
        proxy.on_next("SET", Fault::HoldLastCommand(ms(700)));
        let asking = tokio::spawn(lock(&manager).acquire());
        eventually("it was sent", LONG_TTL, async || proxy.orders_are_done()).await;
        asking.abort();
        let _ = asking.await;
        manager.shutdown(LONG_TTL).await.expect("nothing is held");
        proxy.held_commands_arrive().await;
        crate::keeps_nothing(&server).await;
    })
    .await;
}

/// The connections of a server, without those of the test.
fn connections(server: &Server) -> usize {
    let clients: String = server.admin().ask(&["CLIENT", "LIST"]);
    clients.lines().filter(|client| !client.contains("cmd=client|list")).count()
}

/// Nobody would end it before the manager is dropped.
#[tokio::test]
async fn a_connection_that_comes_after_the_shutdown_is_ended() {
    let server = Server::start();
    for goes_on in [false, true] {
        let proxy = Proxy::to(server.port());
        let builder = LockManager::builder().timeout(TEST_TIMEOUT).lazy();
        let manager = builder.connect(&proxy.url()).await.expect("it connects later");
        proxy.delay(ms(100));
        let asking = manager.clone();
        let asking = tokio::spawn(async move { asking.ready().await });
        let begun = async || connections(&server) == 1;
        eventually("it has begun to connect", TEST_TIMEOUT, begun).await;
        if !goes_on {
            asking.abort();
        }
        manager.shutdown(TEST_TIMEOUT).await.expect("nothing is held");
        assert_eq!(connections(&server), 1, "it is not there yet");
        if let Ok(ready) = asking.await {
            assert_eq!(ready, Err(LockError::ShutDown { held: 0 }));
        }
        let ended = async || connections(&server) == 0;
        eventually("it is ended", TEST_TIMEOUT, ended).await;
        drop(manager);
    }
}

#[tokio::test]
async fn what_learns_the_slots_at_a_shutdown_leaves_no_connection() {
    let cluster = Cluster::start(1, 0).await;
    let manager = LockManager::builder().timeout(TEST_TIMEOUT).lazy().connect(&cluster.url()).await;
    let manager = manager.expect("it connects later");
    cluster.server(0).pause();
    let asking = manager.clone();
    let asking = tokio::spawn(async move { asking.ready().await });
    // Until it has sent what it can, which nobody answers.
    tokio::time::sleep(ms(200)).await;
    asking.abort();
    manager.shutdown(TEST_TIMEOUT).await.expect("nothing is held");
    cluster.server(0).resume();
    let ended = async || connections(cluster.server(0)) == 0;
    eventually("it is ended", TEST_TIMEOUT, ended).await;
    // And stays so: what it has learnt was taken over by then.
    tokio::time::sleep(ms(200)).await;
    assert!(ended().await);
    drop(manager);
}

#[tokio::test]
async fn a_question_for_the_slots_at_a_shutdown_leaves_no_connection() {
    let cluster = Cluster::start(2, 0).await;
    let left = || (0..cluster.size()).map(|nth| connections(cluster.server(nth))).sum::<usize>();
    for knows_the_slots in [false, true] {
        let manager = LockManager::builder().lazy().connect(&cluster.url()).await.expect("later");
        if knows_the_slots {
            manager.ready().await.expect("there");
            // Until the slots may be asked for again.
            tokio::time::sleep(ms(200)).await;
        }
        // The task of the question runs when this one waits.
        let asked = drop_after_polls(manager.inspector().locks("*", 1), 1).await;
        assert!(matches!(asked, Polled::Dropped));
        manager.shutdown(TEST_TIMEOUT).await.expect("nothing is held");
        // In this time it would be asked and answered.
        tokio::time::sleep(ms(400)).await;
        assert_eq!(left(), 0);
        manager.inspector().locks("*", 1).await.expect("a look is no lock");
        eventually("nor does a later look", TEST_TIMEOUT, || ready(left() == 0)).await;
        drop(manager);
    }
}

/// The server takes a command, and the manager would wait for the reply for much longer.
#[tokio::test]
async fn what_is_in_flight_at_a_shutdown_does_not_outlast_it() {
    for command in ["PING", "SUBSCRIBE", "EVAL"] {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let builder = LockManager::builder().timeout(4 * LONG_TTL).lazy();
        let manager = builder.connect(&proxy.url()).await.expect("it connects later");
        let other = crate::manager(&server.url()).await;
        let held = lock(&other).acquire().await.expect("free");
        proxy.on_next_call(move |call| call.names(command), Fault::LoseReply);
        let asking = manager.clone();
        let asking = tokio::spawn(async move {
            match command {
                "PING" => drop(asking.ready().await),
                "SUBSCRIBE" => drop(lock(&asking).wait(LONG_TTL).acquire().await),
                _ => drop(asking.inspector().lock("order:1").await),
            }
        });
        let sent = async || proxy.orders_are_done();
        eventually("it was sent", TEST_TIMEOUT, sent).await;
        asking.abort();
        held.release().await.expect("held");
        other.shutdown(TEST_TIMEOUT).await.expect("nothing is held");
        manager.shutdown(TEST_TIMEOUT).await.expect("nothing is held");
        let ended = async || connections(&server) == 0;
        eventually(&format!("{command} is ended"), TEST_TIMEOUT, ended).await;
        drop(manager);
    }
}
