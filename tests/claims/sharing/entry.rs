//! Who may hold a key beside whom.

use lockmacro_runtime::LockManager;
use lockmacro_tests::{Backend, on, on_a_plain_thread};

use crate::{held, is_busy, lock, released};

#[on(memory, redis, slots, cluster, postgres, both_runtimes)]
async fn shared_holders_are_beside_each_other_and_never_beside_an_exclusive_one(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let one = held(lock(&ours, &key).shared()).await;
    let other = held(lock(&theirs, &key).shared()).await;
    let again = held(lock(&ours, &key).shared()).await;
    assert!(is_busy(lock(&ours, &key)).await && is_busy(lock(&theirs, &key)).await);
    released([one, again]).await;
    assert!(is_busy(lock(&ours, &key)).await, "one is left");
    released([other]).await;
    let exclusive = held(lock(&ours, &key)).await;
    assert!(
        is_busy(lock(&ours, &key).shared()).await && is_busy(lock(&theirs, &key).shared()).await
    );
    released([exclusive]).await;
}

#[on(memory, redis, slots, cluster, postgres, both_runtimes)]
async fn as_many_hold_a_key_as_there_are_permits(backend: &Backend) {
    let managers = [backend.manager().await, backend.manager().await];
    let key = backend.key("printer");
    let permit = |nth: usize| lock(&managers[nth % 2], &key).permits(3);
    let mut guards = Vec::new();
    for nth in 0..3 {
        guards.push(held(permit(nth)).await);
    }
    assert!(is_busy(permit(0)).await && is_busy(permit(1)).await);
    assert!(is_busy(lock(&managers[0], &key)).await, "an exclusive caller is not let in");
    released(guards.pop()).await;
    guards.push(held(permit(3)).await);
    assert!(is_busy(permit(0)).await);
    released(guards).await;
    released([held(lock(&managers[0], &key)).await]).await;
}

#[on(memory, redis, postgres)]
async fn each_caller_is_let_in_by_its_own_number_of_permits(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("printer"));
    let mut guards = vec![held(lock(&manager, &key).permits(2)).await];
    guards.push(held(lock(&manager, &key).permits(2)).await);
    assert!(is_busy(lock(&manager, &key).permits(2)).await);
    guards.push(held(lock(&manager, &key).permits(3)).await);
    assert!(is_busy(lock(&manager, &key).permits(3)).await);
    guards.push(held(lock(&manager, &key).shared()).await);
    released(guards).await;
}

#[on(memory, redis, postgres)]
async fn a_single_permit_is_an_exclusive_lock(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("printer"));
    let guard = held(lock(&manager, &key).permits(1)).await;
    assert!(is_busy(lock(&manager, &key).permits(1)).await);
    assert!(is_busy(lock(&manager, &key).permits(2)).await);
    assert!(is_busy(lock(&manager, &key).shared()).await);
    released([guard]).await;
}

#[on(memory, redis, postgres)]
async fn a_refused_caller_is_told_a_holder_and_when_a_permit_is_free(backend: &Backend) {
    let manager = backend.manager_from(LockManager::builder().label("desk-3")).await;
    let key = backend.key("printer");
    let early = held(lock(&manager, &key).permits(2).ttl(crate::ms(20_000)).name("print")).await;
    let late = held(lock(&manager, &key).permits(2).name("print")).await;
    let busy = lock(&manager, &key).permits(2).acquire().await.expect_err("two hold it");
    assert_eq!(busy.holder().owner.as_deref(), Some("desk-3:print"), "{busy}");
    let free_within = busy.holder().free_within.expect("leases end");
    assert!(free_within <= crate::ms(20_000), "{free_within:?}");
    let busy = lock(&manager, &key).acquire().await.expect_err("two hold it");
    let free_within = busy.holder().free_within.expect("leases end");
    assert!(free_within > crate::ms(20_000), "of the last: {free_within:?}");
    released([early, late]).await;
}

#[on(memory, redis, postgres)]
async fn blocking_callers_share_a_lock(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let shared = lock(&manager, &key).shared();
    let here = held(shared.clone()).await;
    let guard = on_a_plain_thread(move || shared.acquire_blocking()).await.expect("shared");
    assert!(is_busy(lock(&manager, &key)).await);
    on_a_plain_thread(move || guard.release_blocking()).await.expect("still held");
    released([here]).await;
    assert!(backend.is_free(&key).await);
}
