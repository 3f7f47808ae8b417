//! How waits end, and how the lock is passed on.

use tokio::time::{Instant, sleep};

use lockmacro_tests::log;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_wait_ends_by_virtual_time() {
    let (locks, start) = (LockManager::isolated_memory(), Instant::now());
    let held = acquired(lock(&locks, 2 * HOUR)).await;
    let late = lock(&locks, MINUTE).wait(HOUR).acquire().await;
    assert!(matches!(late, Err(LockError::TimedOut { .. })), "{late:?}");
    let after = start.elapsed();
    assert!(after >= HOUR && after < HOUR + 2 * SECOND, "{after:?}");
    held.release().await.expect("held");
}

/// Both are callers of one manager: the lock is passed on inside the process.
#[tokio::test(start_paused = true)]
async fn a_waiter_has_the_lock_when_the_holder_releases_it() {
    let locks = LockManager::isolated_memory();
    hand_off(&locks, &locks).await;
}

/// Each has its own manager at the same store, as two processes have.
#[tokio::test(start_paused = true)]
async fn a_waiter_of_another_manager_is_handed_the_lock() {
    let [one, other] = [connected().await, connected().await];
    hand_off(&one, &other).await;
}

async fn connected() -> LockManager {
    LockManager::connect("memory://").await.expect("memory")
}

async fn hand_off(one: &LockManager, other: &LockManager) {
    let start = Instant::now();
    // A key that no other test has: `memory://` is one store.
    let key = format!("handed-off:{one:p}");
    let held = acquired(Lock::new(&*key).ttl(HOUR).manager(one)).await;
    let waiting = Lock::new(&*key).ttl(HOUR).wait(HOUR).manager(other);
    let waiter = tokio::spawn(async move {
        let guard = waiting.acquire().await.expect("handed off");
        // Longer than a lock is handed off for, until it is confirmed.
        sleep(MINUTE).await;
        guard.release().await
    });
    sleep(20 * MINUTE).await;
    assert!(!waiter.is_finished());
    held.release().await.expect("held");
    waiter.await.expect("no panic").expect("held for the minute");
    let after = start.elapsed();
    assert!(after >= 21 * MINUTE && after < 21 * MINUTE + SECOND, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_has_the_lock_when_the_lease_ends() {
    let (locks, start) = (LockManager::isolated_memory(), Instant::now());
    let lost = acquired(lock(&locks, HOUR)).await;
    let next = lock(&locks, HOUR).wait(2 * HOUR).acquire().await.expect("free after an hour");
    let after = start.elapsed();
    assert!(after >= HOUR.mul_f64(0.98) && after < HOUR + 3 * SECOND, "{after:?}");
    assert!(!lost.is_held());
    next.release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn a_dead_holder_of_another_manager_is_succeeded_when_its_lease_ends() {
    let (one, other, start) = (connected().await, connected().await, Instant::now());
    let key = "a-dead-holder";
    std::mem::forget(acquired(Lock::new(key).ttl(HOUR).manager(&one)).await);
    let waiting = || Lock::new(key).ttl(HOUR).wait(2 * HOUR).manager(&other).acquire();
    let first = tokio::spawn(waiting());
    sleep(SECOND).await;
    let second = tokio::spawn(waiting());
    for waiter in [first, second] {
        waiter.await.expect("no panic").expect("served").release().await.expect("held");
        let after = start.elapsed();
        assert!(after >= HOUR && after < HOUR + SECOND, "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_have_the_lock_in_their_order() {
    let locks = LockManager::isolated_memory();
    let held = acquired(lock(&locks, HOUR)).await;
    let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
    for nth in 0..20 {
        let (waiting, sender) = (lock(&locks, HOUR).wait(HOUR), sender.clone());
        tokio::spawn(waiting.run(async move {
            sleep(MINUTE).await;
            sender.send(nth).expect("the test waits");
            Locked::Ok(())
        }));
        sleep(SECOND).await;
    }
    held.release().await.expect("held");
    for nth in 0..20 {
        assert_eq!(order.recv().await, Some(nth));
    }
}

/// A caller of several keys that is polled keeps the lines of the keys that it has come to, for as
/// long as it waits for another one: in the queue of that key, and at the store.
#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_for_its_second_key_keeps_its_first_line() {
    let locks = LockManager::isolated_memory();
    for is_lost in [false, true] {
        // A lease that its holder does not check ends unnoticed by the queue.
        let held = acquired(Lock::new("b").ttl(HOUR).manager(&locks)).await;
        let both = Lock::many(["a", "b"]).ttl(HOUR).wait(2 * HOUR).manager(&locks);
        let both = tokio::spawn(both.acquire());
        sleep(SECOND).await;
        let single = Lock::new("a").ttl(HOUR).wait(2 * HOUR).manager(&locks);
        let single = tokio::spawn(single.acquire());
        sleep(MINUTE).await;
        assert!(!single.is_finished(), "it comes after the caller of both");
        match is_lost {
            true => sleep(HOUR).await,
            false => held.release().await.expect("held"),
        }
        let both = both.await.expect("no panic").expect("served");
        assert!(!single.is_finished());
        both.release().await.expect("held");
        single.await.expect("no panic").expect("served").release().await.expect("held");
    }
}

/// Of the same process and of another one, each time that the first wait has doubled.
#[tokio::test(start_paused = true)]
async fn a_long_wait_is_logged_with_its_holder_and_not_again_at_once() {
    let logged = |name: &str| {
        let is_wanted = |line: &str| line.contains("long wait") && line.contains(name);
        log::lines(is_wanted)
    };
    log::start();
    let url = LockManager::connect("memory://");
    let (desk, night) = (url.await.unwrap(), LockManager::connect("memory://").await.unwrap());
    for (nth, other) in [&desk, &night].into_iter().enumerate() {
        let name = format!("waits:{nth}");
        let lock = |manager| Lock::new(name.clone()).name(name.clone()).ttl(HOUR).manager(manager);
        let held = acquired(lock(&desk).holder_note("Ann Example")).await;
        let waiting = tokio::spawn(lock(other).wait(HOUR).acquire());
        let later = tokio::spawn(lock(other).wait(HOUR).acquire());
        tokio::time::sleep(9 * SECOND).await;
        assert_eq!(logged(&name), Vec::<String>::new());
        tokio::time::sleep(MINUTE).await;
        let lines = logged(&name);
        assert_eq!(lines.len(), 3, "after 10, 20 and 40 s: {lines:#?}");
        assert!(lines[0].starts_with("INFO") && lines[0].contains("callers=2"), "{lines:#?}");
        assert!(lines[0].contains("(Ann Example)") && lines[0].contains("left="), "{lines:#?}");
        assert!(lines[0].contains("asked_ago="), "{lines:#?}");
        held.release().await.expect("held");
        for waiting in [waiting, later] {
            waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
        }
        assert_eq!(logged(&name).len(), 3);
    }
}
