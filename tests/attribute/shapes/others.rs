//! Beside the attributes of other crates.

use lockmacro_runtime::{
    Fence, Lock, LockError, LockGuard, LockManager, LockManagerBuilder, LockTemplate,
    distributed_lock,
};
use tokio::runtime::Handle;

use crate::held;

/// A manager, where the lock is one that is waited for without a thread.
fn inside() -> LockManager {
    assert!(Handle::try_current().is_ok(), "the lock is taken before there is a runtime");
    LockManager::isolated_memory()
}

/// A manager, where the lock is that of a sync function.
fn outside() -> LockManager {
    assert!(Handle::try_current().is_err(), "the lock is taken in a runtime");
    LockManager::isolated_memory()
}

#[distributed_lock(key = "above", ttl = "30s", manager = inside(), guard = lock)]
#[tokio::test]
async fn above_a_test_of_tokio_the_lock_is_async() -> Result<(), LockError> {
    lock.check()
}

#[tokio::test]
#[distributed_lock(key = "below", ttl = "30s", manager = outside(), guard = lock)]
async fn below_a_test_of_tokio_the_lock_is_sync() -> Result<(), LockError> {
    assert!(Handle::try_current().is_ok());
    lock.check()
}

/// Other tasks go on while a thread that waits holds the lock.
#[test]
fn below_main_of_tokio_a_lock_is_held_around_the_whole_runtime() {
    #[tokio::main(flavor = "current_thread")]
    #[distributed_lock(key = "order:<id>", ttl = "30s", manager = locks)]
    async fn audit(locks: &LockManager, id: u64) -> Result<bool, LockError> {
        Ok(held(locks, &format!("order:{id}")).await)
    }
    let locks = LockManager::isolated_memory();
    assert!(audit(&locks, 7).unwrap());
    assert!(Lock::new("order:7").manager(&locks).acquire_blocking().is_ok());
}

/// What the compiler adds to the public types, and a change of a field may take away.
#[test]
fn locks_and_guards_may_be_sent_and_shared() {
    use lockmacro_runtime::defer::{DeferredFn, Worker};
    use lockmacro_runtime::inspect::{HeldLock, Listing};

    fn is_free<T: Send + Sync + Unpin + 'static>() {}
    fn is_sent<F: Future + Send + 'static>(_: F) {}
    is_free::<Lock>();
    is_free::<LockGuard>();
    is_free::<LockManager>();
    is_free::<LockManagerBuilder>();
    is_free::<LockError>();
    is_free::<LockTemplate>();
    is_free::<Fence>();
    is_free::<DeferredFn<(u64,)>>();
    is_free::<Worker>();
    is_free::<Listing<HeldLock>>();

    let locks = LockManager::disabled();
    let lock = || Lock::new("order").manager(&locks);
    is_sent(lock().acquire());
    is_sent(lock().try_acquire());
    is_sent(lock().run(async { Ok::<_, LockError>(()) }));
    is_sent(lock().skip_when_busy().run(async {}));
    let guard = || lock().acquire_blocking().unwrap();
    is_sent(guard().run(async { Ok::<_, LockError>(()) }));
    is_sent(guard().release());
    is_sent(locks.clone().scope(async {}));
}
