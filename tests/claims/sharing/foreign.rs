//! Programs that know only `SET NX PX` stay outside while a lock is shared, and the other way
//! round.

use lockmacro_tests::Server;
use lockmacro_tests::queue::Queue;

use crate::{LONG_TTL, held, is_busy, lock, manager, ms, released, soon, waiting};

const KEY: &str = "order:42";

#[tokio::test]
async fn another_program_is_refused_until_the_last_lease_is_over() {
    let server = Server::start();
    let mut admin = server.admin();
    let manager = manager(&server).await;
    let mut set = || admin.ask::<Option<String>>(&["SET", KEY, "other", "NX", "PX", "60000"]);
    let long = held(lock(&manager, KEY).shared()).await;
    let brief = held(lock(&manager, KEY).permits(3).ttl(ms(1_000))).await;
    assert_eq!(set(), None);
    let mut looks = server.admin();
    assert!(looks.ttl(KEY).expect("it ends") > LONG_TTL / 2, "of the longest lease");
    let value = looks.get(KEY).expect("the key exists");
    assert!(value.ends_with("/shared"), "it says so: {value}");
    released([long]).await;
    assert_eq!(set(), None);
    assert!(looks.ttl(KEY).expect("it ends") <= ms(1_000), "of the lease that is left");
    released([brief]).await;
    assert_eq!(set().as_deref(), Some("OK"));
}

#[tokio::test]
async fn nobody_is_let_in_while_another_program_holds_the_lock() {
    let server = Server::start();
    let mut admin = server.admin();
    let manager = manager(&server).await;
    admin.ask::<()>(&["SET", KEY, "other", "PX", "60000"]);
    assert!(is_busy(lock(&manager, KEY).shared()).await);
    assert!(is_busy(lock(&manager, KEY).permits(9)).await);
    let mut queue = Queue::at(&server, KEY);
    let mut waiters = Vec::new();
    for _ in 0..3 {
        waiters.push(queue.join(waiting(&manager, KEY).shared().acquire()).await);
    }
    admin.ask::<()>(&["DEL", KEY]);
    let mut guards = Vec::new();
    for waiter in waiters {
        guards.push(soon(waiter).await);
    }
    released(guards).await;
}
