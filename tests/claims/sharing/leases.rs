//! Each holder of a shared lock has a lease, a fence and an end of its own.

use std::mem;

use lockmacro_runtime::{Lock, LockError, LockManager, LossCause};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::queue::Queue;
use lockmacro_tests::times::PUSHED;
use lockmacro_tests::{Backend, Server, eventually, on, on_a_plain_thread, queue_of};
use tokio::time::timeout;

use crate::{LONG_TTL, TEST_TIMEOUT, held, is_busy, lock, manager, ms, released, soon, waiting};

#[on(memory, redis, cluster, postgres)]
async fn the_permit_of_a_dead_holder_is_free_when_its_lease_ends(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("printer").await;
    let living = held(lock(&ours, &key).permits(2)).await;
    // As of a process that was killed: nobody renews or releases it.
    mem::forget(held(lock(&ours, &key).permits(2).ttl(ms(1_000))).await);
    assert!(is_busy(lock(&theirs, &key).permits(2)).await);
    let next = soon(waiting(&theirs, &key).permits(2).acquire()).await;
    assert!(living.is_held() && is_busy(lock(&theirs, &key).permits(2)).await);
    released([living, next]).await;
}

#[on(memory, redis, postgres)]
async fn an_exclusive_waiter_waits_for_the_last_lease_only(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    for ttl in [ms(300), ms(900), ms(600)] {
        mem::forget(held(lock(&ours, &key).shared().ttl(ttl)).await);
    }
    let start = std::time::Instant::now();
    released([soon(waiting(&theirs, &key).acquire()).await]).await;
    // Less what passed before the clock here began.
    assert!(start.elapsed() > ms(600), "{:?}", start.elapsed());
}

#[on(memory, redis, slots, cluster, postgres)]
async fn a_shared_lease_is_renewed(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let ttl = ms(600);
    let renewed = held(Lock::new(&*key).shared().ttl(ttl).renew().manager(&ours)).await;
    let brief = held(lock(&theirs, &key).shared().ttl(ttl)).await;
    // Outlasts three leases.
    tokio::time::sleep(ttl * 3).await;
    assert!(renewed.is_held() && !brief.is_held());
    assert!(is_busy(lock(&theirs, &key)).await);
    released([renewed]).await;
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, postgres)]
async fn a_shared_lease_is_extended(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let guard = held(lock(&manager, &key).shared().ttl(ms(2_000))).await;
    guard.extend(LONG_TTL).await.expect("still held");
    assert!(guard.remaining() > LONG_TTL / 2);
    let busy = lock(&manager, &key).acquire().await.expect_err("it is shared");
    assert!(busy.holder().free_within.expect("a lease") > LONG_TTL / 2, "{busy}");
    released([guard]).await;
}

#[on(memory, redis, slots, postgres)]
async fn every_fence_is_larger_than_all_before_whatever_the_mode(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let mut fences = Vec::new();
    for _ in 0..3 {
        let mut guards = Vec::new();
        for manager in [&ours, &theirs, &ours] {
            let (guard, fence) =
                lock(manager, &key).shared().acquire_fenced().await.expect("shared");
            guards.push(guard);
            fences.push(fence);
        }
        for manager in [&theirs, &ours] {
            let (guard, fence) =
                lock(manager, &key).permits(5).acquire_fenced().await.expect("two more");
            guards.push(guard);
            fences.push(fence);
        }
        released(guards).await;
        let (guard, fence) = lock(&theirs, &key).acquire_fenced().await.expect("free");
        released([guard]).await;
        fences.push(fence);
    }
    assert!(fences.is_sorted_by(|earlier, later| earlier < later), "{fences:?}");
    backend.forget_fences();
}

#[on(memory, redis, slots, postgres)]
async fn shared_waiters_that_are_let_in_together_have_fences_of_their_own(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let mut queue = Queue::of(backend, &key);
    let (writer, first) = lock(&ours, &key).acquire_fenced().await.expect("free");
    let mut readers = Vec::new();
    for manager in [&theirs, &ours, &theirs] {
        readers.push(queue.join(waiting(manager, &key).shared().acquire_fenced()).await);
    }
    released([writer]).await;
    let mut fences = vec![first];
    for reader in readers {
        let (guard, fence) = reader.await.expect("served");
        fences.push(fence);
        released([guard]).await;
    }
    assert!(fences.is_sorted_by(|earlier, later| earlier < later), "{fences:?}");
    backend.forget_fences();
}

#[on(memory, redis, slots, postgres)]
async fn min_hold_keeps_a_permit(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("printer"));
    let brief = lock(&manager, &key).permits(2).min_hold(ms(1_000));
    released([held(brief).await]).await;
    let other = held(lock(&manager, &key).permits(2)).await;
    assert!(is_busy(lock(&manager, &key).permits(2)).await, "it is kept");
    let next = soon(waiting(&manager, &key).permits(2).acquire()).await;
    released([other, next]).await;
}

/// The server counts a lease to its end before it learns of the release, as with a release that was
/// on its way for long. On `memory://` both happen by one clock.
#[on(redis, postgres)]
async fn the_permit_of_a_lease_that_is_over_is_not_kept_for_its_min_hold(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("printer").await;
    let other = held(lock(&theirs, &key).permits(2)).await;
    let late = backend.manager_from(LockManager::builder().label("late")).await;
    let late = held(lock(&late, &key).permits(2).min_hold(LONG_TTL / 2)).await;
    if let Some(server) = backend.database() {
        let of_late = format!("key = '{key}' AND token LIKE 'late%'");
        server.execute(&format!("UPDATE lm1.share SET ends = '-infinity' WHERE {of_late}")).await;
    } else {
        let script = "for _, token in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
            if string.sub(token, 1, 4) == 'late' then redis.call('ZADD', KEYS[1], 1, token) end
        end";
        let holders = queue_of(&key).replace("lm1:wq:", "lm1:wh:");
        backend.admin().expect("a server").ask::<()>(&["EVAL", script, "1", &holders]);
    }
    late.release().await.expect_err("its lease is over");
    released([held(lock(&ours, &key).permits(2)).await, other]).await;
}

#[on(memory, redis, slots, postgres)]
async fn a_waiter_learns_when_a_kept_permit_is_free(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("printer").await;
    let mut queue = Queue::of(backend, &key);
    let kept = held(lock(&ours, &key).permits(2).min_hold(ms(300))).await;
    let other = held(lock(&ours, &key).permits(2)).await;
    // Until now it believes that both permits are held for long.
    let waiter = queue.join(waiting(&theirs, &key).permits(2).acquire()).await;
    released([kept]).await;
    let next = timeout(ms(300) + PUSHED, waiter).await.expect("when it is free").expect("let in");
    released([other, next]).await;
}

#[on(memory, redis, postgres)]
async fn a_dropped_guard_gives_its_permit_back(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("printer"));
    let permit = lock(&manager, &key).permits(2);
    let kept = held(permit.clone()).await;
    drop(held(permit.clone()).await);
    released([soon(permit.wait_forever().acquire()).await, kept]).await;
}

#[on(memory, redis, postgres)]
async fn a_permit_that_is_released_in_the_background_is_free_for_the_next_caller(
    backend: &Backend,
) {
    let (manager, key) = (backend.manager().await, backend.key("printer"));
    let permit = lock(&manager, &key).permits(2).release_in_background();
    let kept = held(permit.clone()).await;
    for _ in 0..20 {
        permit.run(async { crate::Locked::Ok(()) }).await.expect("never busy");
    }
    released([kept]).await;
    backend.becomes_free(&key, TEST_TIMEOUT).await;
}

/// The release is sent again then, after the next caller's first request.
#[tokio::test]
async fn a_permit_is_free_for_the_next_caller_when_the_server_has_forgotten_how_to_release_it() {
    let server = Server::start();
    let manager = manager(&server).await;
    let permit = lock(&manager, "printer").permits(2).release_in_background();
    for _ in 0..100 {
        server.admin().ask::<()>(&["SCRIPT", "FLUSH"]);
        // These load the scripts that acquire.
        let (kept, ends) = (held(permit.clone()).await, held(permit.clone()).await);
        assert!(is_busy(permit.clone()).await);
        ends.run(async { crate::Locked::Ok(()) }).await.expect("held");
        permit.run(async { crate::Locked::Ok(()) }).await.expect("never busy");
        released([kept]).await;
    }
}

#[tokio::test]
async fn holders_learn_that_another_program_has_deleted_their_key() {
    let server = Server::start();
    let manager = manager(&server).await;
    let renewed = |key| Lock::new(key).shared().ttl(ms(600)).renew().manager(&manager);
    let (one, other) = (held(renewed("order:42")).await, held(renewed("order:42")).await);
    server.admin().ask::<()>(&["DEL", "order:42"]);
    for guard in [&one, &other] {
        assert_eq!(guard.lost().await.cause(), LossCause::Taken);
    }
    // Those who come next do not count the ones before.
    let next = held(lock(&manager, "order:42").permits(2)).await;
    released([held(lock(&manager, "order:42").permits(2)).await, next]).await;
    drop((one, other));
    let mut admin = server.admin();
    let empty = || std::future::ready(admin.keys().is_empty());
    eventually("nothing is left behind", TEST_TIMEOUT, empty).await;
}

/// `SHARING_HOLDERS` is another number of holders.
#[on(memory, redis, postgres)]
async fn thousands_of_dead_holders_leave_no_permit_behind(backend: &Backend) {
    const PERMITS: u32 = 100;
    let holders = std::env::var("SHARING_HOLDERS")
        .map_or(5_000, |holders| holders.parse().expect("a number"));
    let (ours, theirs, key) = backend.two_managers("printer").await;
    for _ in 0..holders {
        // Waits for a dead one's lease where all permits are held.
        let permit = lock(&ours, &key).permits(PERMITS).ttl(ms(50)).wait_forever();
        mem::forget(held(permit).await);
    }
    // All permits are free when the leases of the last ones end.
    let mut guards = Vec::new();
    for _ in 0..PERMITS {
        guards.push(soon(waiting(&theirs, &key).permits(PERMITS).acquire()).await);
    }
    assert!(is_busy(lock(&theirs, &key).permits(PERMITS)).await);
    released(guards).await;
}

#[on(memory, redis, postgres)]
async fn a_shutdown_waits_for_shared_holders_and_refuses_shared_waiters(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let mut queue = Queue::of(backend, &key);
    let shared = held(lock(&ours, &key).shared()).await;
    let exclusive = queue.join(waiting(&theirs, &key).acquire()).await;
    let waiter = queue.join(waiting(&ours, &key).shared().acquire()).await;
    let (ended, refused) = tokio::join!(ours.shutdown(TEST_TIMEOUT), async {
        // Only the waiter ends at once.
        let refused = waiter.await;
        shared.release().await.expect("still held");
        refused
    });
    ended.expect("all was released");
    assert!(matches!(refused, Err(LockError::ShutDown { held: 0 })), "{refused:?}");
    released([soon(exclusive).await]).await;
}

#[on(memory, redis, postgres)]
async fn a_blocking_waiter_is_let_in_with_the_others(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let exclusive = held(lock(&ours, &key)).await;
    let waits = [waiting(&theirs, &key).shared(), waiting(&theirs, &key).shared()];
    let waits = waits.map(|wait| {
        tokio::spawn(on_a_plain_thread(move || {
            let guard = wait.acquire_blocking()?;
            guard.release_blocking()
        }))
    });
    let mut queue = Queue::of(backend, &key);
    queue.reaches(2).await;
    Queue::stands_in_line().await;
    released([exclusive]).await;
    for wait in waits {
        wait.await.expect("no panic").expect("let in");
    }
}
