//! Servers that are too far away for a ttl.

use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::{Admin, Proxy, Server, in_time, log};

use crate::{ms, works};

/// All commands that a server has run so far.
fn commands(admin: &mut Admin) -> u64 {
    let stats: String = admin.ask(&["INFO", "stats"]);
    let count = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    count.expect("a number of commands").trim().parse().expect("a number")
}

async fn far_away(server: &Server, round_trip: Duration) -> (Proxy, LockManager) {
    let proxy = Proxy::to(server.port());
    proxy.delay(round_trip);
    let manager = LockManager::connect(&proxy.url()).await.expect("there");
    (proxy, manager)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_that_cannot_be_renewed_in_time_is_told_once_and_storms_nobody() {
    log::start();
    in_time(async {
        let server = Server::start();
        let mut admin = server.admin();
        // Three quarters of the ttl.
        let (proxy, manager) = far_away(&server, ms(150)).await;
        works(&manager).await;
        let before = commands(&mut admin);
        let (mut granted, mut locks) = (0, Vec::new());
        for nth in 0..20 {
            let lock = Lock::new(format!("short:{nth}")).ttl(ms(201)).renew().manager(&manager);
            locks.push(tokio::spawn(async move {
                let guard = lock.acquire().await?;
                Ok::<_, LockError>(guard.lost().await)
            }));
        }
        for lock in locks {
            granted += u64::from(lock.await.expect("no panic").is_ok());
        }
        let ran = commands(&mut admin) - before;
        let opened = proxy.accepted();
        assert!(granted > 0 && ran < 20 * 20, "{ran} commands for {granted} leases");
        assert!(opened < 8, "{opened} connections");
        let told = log::so_far();
        let told = told.lines().filter(|line| line.contains("ttl=201ms"));
        let told: Vec<_> = told.filter(|line| line.starts_with("WARN")).collect();
        assert_eq!(told.len(), 1, "{told:#?}");
        assert!(told[0].contains("too short for the round trip"), "{told:?}");
    })
    .await;
}
