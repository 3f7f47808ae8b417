//! The life of a lease as a user writes it: from the attribute.

use std::time::{Duration, Instant};

use lockmacro_runtime::{
    Lock, LockError, LockGuard, LockManager, LossCause, Lost, distributed_lock,
};
use lockmacro_tests::{Backend, on, on_a_plain_thread};

use crate::{
    BRIEF, Locked, SOON, block_until_lost, brief, cause, left, ms, outlast, until_lost,
    until_renewed,
};

#[distributed_lock(key = key, ttl = "1500ms", renew, guard = lock, manager = manager)]
async fn work(manager: &LockManager, key: &str) -> Locked<u32> {
    until_renewed(&lock).await;
    Ok(7)
}

#[on(memory, redis)]
async fn renew_keeps_the_lock_for_the_body(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    assert_eq!(work(&manager, &key).await, Ok(7));
    assert!(backend.is_free(&key).await);
}

#[distributed_lock(key = key, guard = lock, manager = manager)]
async fn remaining(manager: &LockManager, key: &str) -> Locked<Duration> {
    Ok(lock.remaining())
}

#[on(memory, redis)]
async fn a_function_without_a_ttl_is_renewed(backend: &Backend) {
    let manager = backend.manager().await;
    let remaining = remaining(&manager, &backend.key("order:42")).await.expect("free");
    assert!(remaining > ms(25_000) && remaining < ms(30_000), "{remaining:?}");
    // 30 s are too long to watch, so this manager has a shorter default.
    let (manager, key) = (brief(backend).await, backend.key("brief"));
    assert_eq!(unnamed(&manager, &key, backend).await, Ok(7));
    assert!(backend.is_free(&key).await);
}

/// Its body is dropped at the end of the lease, unless that is renewed.
#[distributed_lock(key = key, manager = manager)]
async fn unnamed(manager: &LockManager, key: &str, backend: &Backend) -> Locked<u32> {
    outlast(BRIEF).await;
    assert!(!backend.is_free(key).await);
    Ok(7)
}

#[distributed_lock(key = key, ttl = "2s", renew, max_hold = "3s", manager = manager)]
async fn hang(manager: &LockManager, key: &str) -> Locked<()> {
    std::future::pending().await
}

#[on(memory, redis)]
async fn max_hold_ends_the_body(backend: &Backend) {
    let manager = backend.manager().await;
    let start = Instant::now();
    let result = hang(&manager, &backend.key("order:42")).await;
    assert_eq!(cause(result), LossCause::Expired);
    // Another renewal would be good for another ttl.
    assert!(start.elapsed() > ms(2_950) && start.elapsed() < ms(4_500), "{:?}", start.elapsed());
}

#[distributed_lock(key = key, ttl = "60s", min_hold = "1500ms", manager = manager)]
async fn job(manager: &LockManager, key: &str) -> Locked<()> {
    Ok(())
}

#[on(memory, redis)]
async fn min_hold_keeps_the_key(backend: &Backend) {
    let (manager, rival) = (backend.manager().await, backend.manager().await);
    let key = backend.key("job");
    let start = Instant::now();
    job(&manager, &key).await.expect("free");
    let kept = left(&rival, &key).await.expect("kept");
    assert!(kept + start.elapsed() > ms(1_498) && kept <= ms(1_500), "{kept:?}");
    backend.becomes_free(&key, SOON).await;
}

#[distributed_lock(key = key, ttl = "400ms", manager = manager)]
async fn cancelled(manager: &LockManager, key: &str, ended: &mut bool) -> Locked<u32> {
    until_lost().await;
    *ended = true;
    Ok(7)
}

#[distributed_lock(key = key, ttl = "400ms", on_lost = error, manager = manager)]
async fn ending(manager: &LockManager, key: &str, ended: &mut bool) -> Locked<u32> {
    until_lost().await;
    *ended = true;
    Ok(7)
}

#[distributed_lock(key = key, ttl = "400ms", on_lost = finish, manager = manager)]
async fn finishing(manager: &LockManager, key: &str) -> Locked<u32> {
    until_lost().await;
    Ok(7)
}

#[on(memory, redis)]
async fn error_and_finish_let_the_body_end_and_without_them_it_is_cancelled(backend: &Backend) {
    let manager = backend.manager().await;
    let mut ended = false;
    let result = cancelled(&manager, &backend.key("cancel"), &mut ended).await;
    assert_eq!((cause(result), ended), (LossCause::Expired, false));
    let result = ending(&manager, &backend.key("error"), &mut ended).await;
    assert_eq!((cause(result), ended), (LossCause::Expired, true));
    assert_eq!(finishing(&manager, &backend.key("finish")).await, Ok(7));
}

fn roll_back(lost: Lost, written: Locked<Vec<String>>) -> Locked<Vec<String>> {
    let mut written = written?;
    written.push(format!("rolled back, {:?}", lost.cause()));
    Ok(written)
}

#[distributed_lock(key = key, ttl = *ttl, on_lost = roll_back, manager = manager)]
async fn book(manager: &LockManager, key: &str, ttl: &Duration) -> Locked<Vec<String>> {
    if *ttl < SOON {
        until_lost().await;
    }
    Ok(vec!["booked".to_owned()])
}

#[on(memory, redis)]
async fn a_handler_can_roll_back(backend: &Backend) {
    let manager = backend.manager().await;
    let late = book(&manager, &backend.key("late"), &ms(400)).await.expect("it recovers");
    assert_eq!(late, ["booked", "rolled back, Expired"]);
    let in_time = book(&manager, &backend.key("in time"), &SOON).await.expect("held");
    assert_eq!(in_time, ["booked"]);
}

#[distributed_lock(key = key, ttl = "60s", guard = lock, fence = fence, manager = manager)]
async fn fenced(manager: &LockManager, key: &str) -> Locked<u64> {
    lock.check()?;
    lock.extend(ms(90_000)).await?;
    assert!(lock.remaining() > ms(80_000));
    assert_eq!((lock.key().as_str(), lock.fence()), (key, Some(fence)));
    Ok(u64::from(fence))
}

#[on(memory, redis)]
async fn the_body_has_its_guard_and_its_fence(backend: &Backend) {
    let manager = backend.manager().await;
    let key = backend.key("order:42");
    let first = fenced(&manager, &key).await.expect("free");
    let second = fenced(&manager, &key).await.expect("free");
    assert!(second > first);
    backend.forget_fences();
}

#[distributed_lock(key = key, ttl = "60s", fence = fence, manager = manager)]
async fn recurse(manager: &LockManager, key: &str, depth: u32) -> Locked<Vec<u64>> {
    let mut fences = vec![u64::from(fence)];
    if depth > 1 {
        fences.extend(Box::pin(recurse(manager, key, depth - 1)).await?);
    }
    Ok(fences)
}

#[on(memory, redis)]
async fn a_function_that_calls_itself_is_one_lock(backend: &Backend) {
    let manager = backend.manager().await;
    let key = backend.key("order:42");
    let fences = recurse(&manager, &key, 5).await.expect("it enters its own lock");
    assert!(fences.len() == 5 && fences.iter().all(|fence| *fence == fences[0]), "{fences:?}");
    assert!(backend.is_free(&key).await);
    backend.forget_fences();
}

#[distributed_lock(
    key = key, ttl = "2s", renew, max_hold = "3500ms", min_hold = "100ms",
    on_lost = roll_back, guard = lock, fence = fence, manager = manager
)]
fn book_blocking(manager: &LockManager, key: &str, is_late: bool) -> Locked<Vec<String>> {
    if is_late {
        block_until_lost();
    }
    let joined = Lock::new(key).manager(manager).acquire_blocking();
    Ok(vec![format!("{} {}", lock.fence() == Some(fence), joined.is_ok())])
}

#[on(memory, redis)]
async fn sync_functions_have_the_same_arguments(backend: &Backend) {
    let manager = backend.manager().await;
    let (late, in_time) = (backend.key("late"), backend.key("in time"));
    let start = Instant::now();
    let written = on_a_plain_thread(move || {
        assert!(LockGuard::current().is_none());
        let in_time = book_blocking(&manager, &in_time, false)?;
        Ok::<_, LockError>((in_time, book_blocking(&manager, &late, true)?))
    });
    let (in_time, late) = written.await.expect("both end");
    assert_eq!(in_time, ["true true"]);
    assert_eq!(late, ["true false", "rolled back, Expired"]);
    // It is renewed, once.
    assert!(start.elapsed() > ms(3_400), "{:?}", start.elapsed());
    backend.forget_fences();
}
