//! What a manager leaves when it was shut down.

use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::{Fault, Proxy, Server, eventually, in_time};

use crate::{LONG_TTL, TIMEOUT, lock, ms, works};

const MANAGERS: usize = 10;
/// What a shutdown may leave behind is gone within 6 s; here with what a loaded machine adds.
const GONE_WITHIN: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_that_was_shut_down_leaves_no_thread_and_no_connection_for_a_ttl() {
    in_time(async {
        let server = Server::start();
        let mut admin = server.admin();
        let mut connections = move || {
            let list: String = admin.ask(&["CLIENT", "LIST", "TYPE", "normal"]);
            let pubsub: String = admin.ask(&["CLIENT", "LIST", "TYPE", "pubsub"]);
            // Without our own.
            list.lines().count() + pubsub.lines().count() - 1
        };
        let proxy = Proxy::to(server.port());
        for _ in 0..MANAGERS {
            let manager = LockManager::builder().timeout(TIMEOUT).connect(&proxy.url()).await;
            let manager = manager.expect("there");
            works(&manager).await;
            // It is not known whether this one arrives.
            proxy.on_next("SET", Fault::LoseReply);
            let dropped = Lock::new("dropped").ttl(LONG_TTL).manager(&manager);
            let asking = tokio::spawn(dropped.acquire());
            eventually("it was sent", LONG_TTL, || std::future::ready(proxy.orders_are_done()))
                .await;
            asking.abort();
            let _ = asking.await;
            manager.shutdown(LONG_TTL).await.expect("nothing is held");
        }
        let start = Instant::now();
        eventually("all have gone", GONE_WITHIN, || std::future::ready(connections() == 0)).await;
        assert!(start.elapsed() < GONE_WITHIN);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_arrives_soon_after_a_shutdown_is_taken_back_all_the_same() {
    in_time(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let manager = LockManager::builder().timeout(TIMEOUT).connect(&proxy.url()).await;
        let manager = manager.expect("there");
        works(&manager).await;
        proxy.on_next("SET", Fault::HoldLastCommand(ms(700)));
        let asking = tokio::spawn(lock(&manager).acquire());
        eventually("it was sent", LONG_TTL, || std::future::ready(proxy.orders_are_done())).await;
        asking.abort();
        let _ = asking.await;
        manager.shutdown(LONG_TTL).await.expect("nothing is held");
        proxy.held_commands_arrive().await;
        crate::keeps_nothing(&server).await;
    })
    .await;
}
