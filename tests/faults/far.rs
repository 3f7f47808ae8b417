//! Servers that are too far away for a ttl.

use lockmacro_runtime::{Lock, LockError};
use lockmacro_tests::{Proxy, Server, in_time, log};

use crate::{ms, works};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_that_cannot_be_renewed_in_time_is_logged_once_and_causes_no_storm() {
    log::start();
    in_time(async {
        let server = Server::start();
        let mut admin = server.admin();
        // Three quarters of the ttl.
        let (proxy, manager) = Proxy::far_away(&server, ms(150)).await;
        works(&manager).await;
        let before = admin.commands();
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
        let ran = admin.commands() - before;
        let opened = proxy.accepted();
        assert!(granted > 0 && ran < 20 * 20, "{ran} commands for {granted} leases");
        assert!(opened < 8, "{opened} connections");
        let logged = log::so_far();
        let logged = logged.lines().filter(|line| line.contains("ttl=201ms"));
        let logged: Vec<_> = logged.filter(|line| line.starts_with("WARN")).collect();
        assert_eq!(logged.len(), 1, "{logged:#?}");
        assert!(logged[0].contains("too short for the round trip"), "{logged:?}");
    })
    .await;
}
