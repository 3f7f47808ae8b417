//! Leases of a server that is far away: a renewal is given as long as its answer takes.

use std::time::Duration;

use lockmacro_tests::{Proxy, Server, in_time};

use crate::{ms, outlast, renewed, warm_up};

/// Far more than an answer was waited for at least.
const ROUND_TRIP: Duration = Duration::from_millis(60);
const TTL: Duration = Duration::from_millis(400);

/// Both the first lease of a manager, whose background thread is not connected yet, and later ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_of_a_few_round_trips_is_renewed() {
    in_time(async {
        let server = Server::start();
        let mut admin = server.admin();
        let (_proxy, manager) = Proxy::far_away(&server, ROUND_TRIP).await;
        warm_up(&manager).await;
        let long = renewed(&manager, "long", ms(1_500)).acquire().await.expect("free");
        let before = admin.commands();
        outlast(ms(3_000)).await;
        long.check().expect("renewed all the time");
        let ran = admin.commands() - before;
        // Its renewals, and what opening the thread's connection takes.
        assert!((4..60).contains(&ran), "{ran} commands");
        // The thread is connected now, as it is in a program that runs.
        let short = renewed(&manager, "short", TTL).acquire().await.expect("free");
        let before = admin.commands();
        outlast(5 * TTL).await;
        short.check().expect("renewed all the time");
        let ran = admin.commands() - before;
        assert!((10..150).contains(&ran), "{ran} commands");
        short.release().await.expect("still ours");
        long.release().await.expect("still ours");
    })
    .await;
}
