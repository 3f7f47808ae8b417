//! The attribute's arguments for locks that several callers hold.

use std::sync::Arc;

use lockmacro_runtime::{Fence, LockError, LockManager, distributed_lock};
use lockmacro_tests::queue::Queue;
use lockmacro_tests::{Backend, on};
use tokio::sync::{Barrier, Semaphore};
use tokio::time::timeout;

use crate::{TEST_TIMEOUT, held, is_busy, lock, released};

#[distributed_lock(key = key, shared, manager = locks)]
async fn report(locks: &LockManager, key: &str, together: Arc<Barrier>) -> Result<(), LockError> {
    together.wait().await;
    Ok(())
}

#[distributed_lock(key = key, permits = permits, fence = fence, manager = locks)]
async fn print(locks: &LockManager, key: &str, permits: u32) -> Result<Fence, LockError> {
    Ok(fence)
}

#[distributed_lock(key = key, permits = 2, manager = locks)]
fn print_here(locks: &LockManager, key: &str) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = [shared(rates), permits(desk, 2), account], manager = locks)]
async fn book(
    locks: &LockManager,
    rates: &str,
    desk: &str,
    account: &str,
    together: Arc<Barrier>,
) -> Result<(), LockError> {
    together.wait().await;
    Ok(())
}

#[on(memory, redis, postgres)]
async fn one_permit_is_exclusive(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("desk"));
    let guard = held(lock(&manager, &key).permits(2)).await;
    assert!(is_busy(lock(&manager, &key).permits(1)).await);
    released([guard]).await;
    released([held(lock(&manager, &key).permits(1)).await]).await;
}

#[on(memory, redis, postgres)]
async fn shared_functions_run_at_the_same_time(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    // None of the bodies ends before all of them run.
    let together = Arc::new(Barrier::new(3));
    let body = || report(&manager, &key, Arc::clone(&together));
    let (one, two, three) = tokio::join!(body(), body(), body());
    one.and(two).and(three).expect("all at once");
    let exclusive = held(lock(&manager, &key)).await;
    assert!(body().await.is_err_and(|error| error.is_busy()));
    released([exclusive]).await;
}

#[on(memory, redis, postgres)]
async fn the_number_of_permits_may_be_an_expression(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("printer"));
    let guard = held(lock(&manager, &key).permits(2)).await;
    let first = print(&manager, &key, 2).await.expect("the second of two");
    let second = print(&manager, &key, 2).await.expect("the second of two");
    assert!(first < second);
    print(&manager, &key, 1).await.expect_err("an exclusive lock");
    assert!(matches!(print(&manager, &key, 0).await, Err(LockError::InvalidSetting { .. })));
    released([guard]).await;
    backend.forget_fences();
}

#[on(memory, redis, postgres)]
async fn a_function_that_is_not_async_takes_a_permit(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("printer"));
    let guards =
        [held(lock(&manager, &key).permits(2)).await, held(lock(&manager, &key).permits(2)).await];
    let there = (manager.clone(), key.clone());
    let print = move || print_here(&there.0, &there.1);
    let printed = lockmacro_tests::on_a_plain_thread(print.clone()).await;
    assert!(printed.is_err_and(|error| error.is_busy()));
    released(guards).await;
    lockmacro_tests::on_a_plain_thread(print).await.expect("free");
}

#[on(memory, redis, slots, postgres)]
async fn each_of_several_keys_says_who_may_hold_it(backend: &Backend) {
    let manager = backend.manager().await;
    let [rates, desk, one, other] =
        ["rates", "desk", "account:3", "account:7"].map(|key| backend.key(key));
    let together = Arc::new(Barrier::new(2));
    let body = |account| book(&manager, &rates, &desk, account, Arc::clone(&together));
    let (first, second) = tokio::join!(body(&one), body(&other));
    first.and(second).expect("at the same time");
    let guard = held(lock(&manager, &rates)).await;
    assert!(is_busy(lock(&manager, &rates).shared()).await);
    assert!(body(&one).await.is_err_and(|error| error.is_busy()));
    released([guard]).await;
}

#[distributed_lock(key = [permits(desk, 1), account], manager = locks)]
async fn alone_at_the_desk(
    locks: &LockManager,
    desk: &str,
    account: &str,
) -> Result<(), LockError> {
    Ok(())
}

#[on(memory, redis, postgres)]
async fn one_permit_in_a_list_is_exclusive(backend: &Backend) {
    let manager = backend.manager().await;
    let [desk, account] = ["desk", "account:3"].map(|key| backend.key(key));
    let guard = held(lock(&manager, &desk).permits(2)).await;
    let busy = alone_at_the_desk(&manager, &desk, &account).await;
    assert!(busy.is_err_and(|error| error.is_busy()));
    released([guard]).await;
    alone_at_the_desk(&manager, &desk, &account).await.expect("free");
}

/// Counts the bodies that have begun, and those that may end.
struct Bodies {
    begun: Semaphore,
    ends: Semaphore,
}

#[distributed_lock(key = tenant, wait = forever, manager = locks)]
async fn export(
    locks: &LockManager,
    tenant: &str,
    all: &str,
    bodies: &Bodies,
) -> Result<(), LockError> {
    export_now(locks, all, bodies).await
}

#[distributed_lock(key = all, permits = 3, wait = forever, manager = locks)]
async fn export_now(locks: &LockManager, all: &str, bodies: &Bodies) -> Result<(), LockError> {
    bodies.begun.add_permits(1);
    bodies.ends.acquire().await.expect("never closed").forget();
    Ok(())
}

/// The recipe of `docs/several-keys.md`.
#[on(redis)]
async fn calls_that_wait_for_their_tenant_keep_no_other_tenant_out(backend: &Backend) {
    let [all, busy, other] = ["all", "tenant:1", "tenant:2"].map(|key| backend.key(key));
    let mut managers = Vec::new();
    for _ in 0..6 {
        managers.push(backend.manager().await);
    }
    let bodies = Bodies { begun: Semaphore::new(0), ends: Semaphore::new(0) };
    let calls = managers[..5].iter().map(|locks| export(locks, &busy, &all, &bodies));
    let calls = futures::future::try_join_all(calls);
    let quiet = async {
        // Each of the five calls is from a process of its own, so that the server shows all.
        Queue::of(backend, &busy).reaches(4).await;
        let quiet = export(&managers[5], &other, &all, &bodies);
        let two_run = async {
            let begun = bodies.begun.acquire_many(2);
            let begun = timeout(TEST_TIMEOUT, begun).await.expect("two tenants, two bodies");
            begun.expect("never closed").forget();
            // None has ended before.
            bodies.ends.add_permits(6);
        };
        tokio::join!(quiet, two_run).0
    };
    let (calls, quiet) = tokio::join!(calls, quiet);
    calls.map(drop).and(quiet).expect("all were served");
}
