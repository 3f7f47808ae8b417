//! Several keys of one lock, some of them shared.

use lockmacro_runtime::{Lock, LockKey, LockManager};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::queue::Queue;
use lockmacro_tests::{Backend, on};

use crate::{LONG_TTL, held, is_busy, lock, released, soon, waiting};

/// The rates shared, and an account exclusively.
fn booking(manager: &LockManager, rates: &str, account: &str) -> Lock {
    Lock::many([LockKey::from(rates).shared(), account.into()]).ttl(LONG_TTL).manager(manager)
}

#[on(memory, redis, slots, cluster, postgres)]
async fn each_key_has_its_own_mode(backend: &Backend) {
    let (ours, theirs) = (backend.manager().await, backend.manager().await);
    let [rates, one, other] = ["rates", "account:3", "account:7"].map(|key| backend.key(key));
    let first = booking(&ours, &rates, &one).acquire().await.expect("free");
    let second = booking(&theirs, &rates, &other).acquire().await.expect("the rates are shared");
    let error = booking(&theirs, &rates, &one).acquire().await.expect_err("it has the account");
    assert!(error.is_busy(), "{error}");
    assert!(is_busy(lock(&ours, &rates)).await && is_busy(lock(&ours, &one).shared()).await);
    released([first, second]).await;
    for key in [&rates, &one, &other] {
        assert!(backend.is_free(key).await);
    }
}

#[on(memory, redis, slots, cluster, postgres)]
async fn a_waiter_for_several_keys_waits_for_those_that_share_one(backend: &Backend) {
    let (ours, theirs) = (backend.manager().await, backend.manager().await);
    let [rates, account] = ["rates", "account:3"].map(|key| backend.key(key));
    let reader = held(lock(&ours, &rates).shared()).await;
    let mut queue = Queue::of(backend, &rates);
    let both = Lock::many([&*rates, &*account]).ttl(LONG_TTL).wait_forever().manager(&theirs);
    let both = tokio::spawn(both.acquire());
    queue.reaches(1).await;
    // `memory://` shows nothing.
    Queue::stands_in_line().await;
    assert!(is_busy(lock(&ours, &rates).shared()).await, "others wait");
    released([reader]).await;
    released([soon(async { both.await.expect("no panic") }).await]).await;
}

#[on(memory, redis, slots, cluster, postgres)]
async fn the_fences_of_shared_keys_grow_with_all_others(backend: &Backend) {
    let manager = backend.manager().await;
    let [rates, account] = ["rates", "account:3"].map(|key| backend.key(key));
    let (single, before) = lock(&manager, &rates).acquire_fenced().await.expect("free");
    released([single]).await;
    let both = booking(&manager, &rates, &account);
    let (guard, fences) = both.acquire_fenced().await.expect("free");
    assert!(fences[0] > before[0]);
    let (single, after) = lock(&manager, &rates).shared().acquire_fenced().await.expect("shared");
    assert!(after[0] > fences[0]);
    released([guard, single]).await;
    backend.forget_fences();
}

#[on(memory, redis, postgres)]
async fn a_key_that_is_named_twice_is_locked_in_its_stricter_mode(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("rates"));
    let twice = Lock::many([LockKey::from(&*key).shared(), LockKey::from(&*key)]);
    let guard = twice.ttl(LONG_TTL).manager(&manager).acquire().await.expect("free");
    assert!(is_busy(lock(&manager, &key).shared()).await);
    released([guard]).await;
    released([soon(waiting(&manager, &key).shared().acquire()).await]).await;
}
