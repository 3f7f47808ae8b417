//! The costs of several keys on a server.

use lockmacro_runtime::LockManager;
use lockmacro_tests::{Backend, queue_of};

use crate::{LONG_TTL, Locked, lock, many};

#[tokio::test]
async fn any_number_of_keys_costs_two_commands_without_contention() {
    let backend = Backend::redis();
    let manager = LockManager::connect(backend.url()).await.expect("there");
    let mut admin = backend.admin().expect("a server");
    // The server loads the scripts.
    drop(many(&manager, ["a", "b"]).run(async { Locked::Ok(()) }).await);
    for count in [3, 16, 128] {
        for waits in [false, true] {
            let lock = many(&manager, (0..count).map(|nth| format!("order:{nth}")));
            let lock = if waits { lock.wait(LONG_TTL) } else { lock };
            admin.forget_calls();
            lock.run(async { Locked::Ok(()) }).await.expect("free");
            let calls = admin.calls();
            let scripts = calls.iter().find(|(name, _)| name == "evalsha");
            assert_eq!(scripts.map(|(_, calls)| *calls), Some(2), "{count} keys: {calls:?}");
            // The scripts run every command for each key alike, but for the one command that a full
            // server refuses.
            let once_more = |(name, calls): &&(String, u64)| {
                name != "evalsha" && (name.as_str(), *calls) != ("zadd", 1) && calls % count != 0
            };
            assert_eq!(calls.iter().find(once_more), None, "{count} keys: {calls:?}");
        }
    }
}

/// All at once, those before the busy one, that one in the queue, those after it, the confirmation,
/// the release: not one for each key.
#[tokio::test]
async fn a_busy_key_costs_as_much_whatever_the_number_of_keys() {
    let backend = Backend::redis();
    let (ours, theirs) = (backend.manager().await, backend.manager().await);
    let mut admin = backend.admin().expect("a server");
    let mut costs = Vec::new();
    // The second time all scripts are loaded.
    for count in [3, 3, 16, 128] {
        let keys: Vec<_> = (0..count).map(|nth| format!("order:{nth:03}")).collect();
        let busy = lock(&theirs, &keys[count / 2]).acquire().await.expect("free");
        admin.forget_calls();
        let waiter = many(&ours, &keys).wait(LONG_TTL).acquire();
        let mut waiter = Box::pin(waiter);
        let queue = queue_of(&keys[count / 2]);
        let start = std::time::Instant::now();
        while admin.ask::<u64>(&["EXISTS", &queue]) == 0 {
            assert!(futures::poll!(&mut waiter).is_pending() && start.elapsed() < LONG_TTL / 2);
            tokio::task::yield_now().await;
        }
        busy.release().await.expect("still held");
        waiter.await.expect("served").release().await.expect("still held");
        costs.push(admin.count(&["eval", "evalsha"]));
    }
    // Two of these are the holder's own release: it did not wait, and finds out that somebody does.
    assert_eq!(costs[1..], [8; 3]);
}
