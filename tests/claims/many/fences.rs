//! One fence for each key, larger than that of every earlier grant of that key.

use lockmacro_runtime::{Fence, LockError};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::{Backend, Server, on, on_a_plain_thread};

use crate::{LONG_TTL, Locked, keys, lock, many, two_managers, until_it_holds};

#[on(memory, redis, slots, redlock, postgres, both_runtimes)]
async fn each_key_has_the_fence_of_its_own(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<3>(backend));
    // In any order, and one of them twice.
    let given = [&keys[2], &keys[0], &keys[1], &keys[2]];
    let (guard, fences) = many(&manager, given).acquire_fenced().await.expect("free");
    let of = |key: &String| guard.fence_of(key).expect("a fence");
    assert_eq!(fences, given.map(of));
    assert_eq!(guard.fence(), None, "which one would it be?");
    assert_eq!(guard.fence_of("another"), None);
    guard.release().await.expect("still held");
    backend.forget_fences();
}

#[on(memory, redis, slots, redlock, postgres, both_runtimes)]
async fn fences_grow_for_every_caller_and_number_of_keys(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<2>(backend).await;
    let mut last: [Option<Fence>; 2] = [None, None];
    let mut larger = |nth: usize, fence: Fence| {
        assert!(last[nth].is_none_or(|last| last < fence), "key {nth}: {last:?}, then {fence}");
        last[nth] = Some(fence);
    };
    for _ in 0..20 {
        let (guard, fences) = many(&ours, &keys).acquire_fenced().await.expect("free");
        guard.release().await.expect("still held");
        larger(0, fences[0]);
        larger(1, fences[1]);
        let (guard, fence) = lock(&theirs, &keys[1]).acquire_fenced().await.expect("free");
        guard.release().await.expect("still held");
        larger(1, fence[0]);
    }
    backend.forget_fences();
}

#[on(memory, redis, slots, redlock, postgres, both_runtimes)]
async fn a_waiter_has_a_fence_for_each_key(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<3>(backend).await;
    let (guard, before) = many(&theirs, &keys[1..]).acquire_fenced().await.expect("free");
    let waiter = async {
        let (guard, fences) = many(&ours, &keys).wait(LONG_TTL).acquire_fenced().await?;
        let of = |key: &String| guard.fence_of(key).expect("a fence");
        assert_eq!(fences, keys.each_ref().map(of));
        assert!(fences[1] > before[0] && fences[2] > before[1], "{fences:?} after {before:?}");
        Locked::Ok(guard)
    };
    let waiter = until_it_holds(backend, &keys[0], waiter).await;
    guard.release().await.expect("still held");
    waiter.await.expect("served").release().await.expect("still held");
    backend.forget_fences();
}

#[on(memory, redis, slots, postgres, both_runtimes)]
async fn an_inner_lock_has_the_fences_of_the_outer_one(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<3>(backend));
    let (guard, outer) = many(&manager, &keys).acquire_fenced().await.expect("free");
    let inner = async {
        let (guard, fence) = lock(&manager, &keys[1]).acquire_fenced().await?;
        assert_eq!((guard.key().as_str(), guard.fence()), (keys[1].as_str(), Some(outer[1])));
        assert_eq!(fence, [outer[1]]);
        let of = manager.guard_of(&keys[2]).expect("it is held");
        assert_eq!((of.key().as_str(), of.fence()), (keys[2].as_str(), Some(outer[2])));
        let (_, fences) = many(&manager, [&keys[2], &keys[0]]).acquire_fenced().await?;
        assert_eq!(fences, [outer[2], outer[0]]);
        Locked::Ok(())
    };
    guard.run(inner).await.expect("joined");
    let none = many(&manager, &keys).run(async {
        let error = many(&manager, &keys[1..]).fenced().acquire().await.expect_err("without");
        assert!(matches!(&error, LockError::Nested { .. }));
        assert!(error.to_string().contains(&keys[1]), "{error}");
        Locked::Ok(())
    });
    none.await.expect("free");
    backend.forget_fences();
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_sync_caller_has_a_fence_for_each_key(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<2>(backend));
    let given = keys.clone();
    let (guard, fences) =
        on_a_plain_thread(move || many(&manager, &given).acquire_fenced_blocking().expect("free"))
            .await;
    assert_eq!(fences, keys.each_ref().map(|key| guard.fence_of(key).expect("a fence")));
    guard.release().await.expect("still held");
    backend.forget_fences();
}

/// The fences of one grant are mostly equal, so here one counter is ahead.
#[on(redis, slots)]
async fn a_fence_is_counted_from_its_own_keys_last_one(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<2>(backend));
    let mut admin = backend.admin().expect("a server");
    let ahead = 1_u64 << 52;
    let counter = format!("lm1:wf:{{{}}}", keys[1]);
    admin.ask::<()>(&["SET", &counter, &ahead.to_string(), "PX", "60000"]);
    let lock = many(&manager, [&keys[1], &keys[0]]);
    let (guard, fences) = lock.acquire_fenced().await.expect("free");
    assert_eq!(u64::from(fences[0]), ahead + 1);
    assert!(u64::from(fences[1]) < ahead);
    guard.release().await.expect("still held");
    backend.forget_fences();
}

/// Without `fence` there is no counter.
#[tokio::test]
async fn a_lock_without_fences_leaves_no_counters() {
    let server = Server::start();
    let manager = lockmacro_runtime::LockManager::connect(&server.url()).await.expect("there");
    drop(many(&manager, ["a", "b"]).run(async { Locked::Ok(()) }).await);
    assert_eq!(server.admin().keys(), Vec::<String>::new());
}
