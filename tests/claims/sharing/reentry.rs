//! A lock that is acquired inside of a body under the same key.

use lockmacro_runtime::{Lock, LockError};
use lockmacro_tests::{Backend, on};

use crate::{Locked, lock};

#[on(memory, redis, postgres)]
async fn a_shared_lock_joins_an_outer_one(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    for outer in
        [lock(&manager, &key), lock(&manager, &key).shared(), lock(&manager, &key).permits(2)]
    {
        let inner = async {
            for inner in [lock(&manager, &key).shared(), lock(&manager, &key).permits(2)] {
                inner.run(async { Locked::Ok(()) }).await?;
            }
            Locked::Ok(())
        };
        outer.run(inner).await.expect("it joins");
        assert!(backend.is_free(&key).await);
    }
}

#[on(memory, redis, postgres)]
async fn a_holder_that_shares_a_lock_cannot_make_it_exclusive(backend: &Backend) {
    let manager = backend.manager().await;
    let (key, other) = (backend.key("order:42"), backend.key("order:43"));
    for outer in [lock(&manager, &key).shared(), lock(&manager, &key).permits(2)] {
        let inner = async {
            // It would wait for itself.
            let exclusive = lock(&manager, &key).wait_forever();
            let error = exclusive.acquire().await.expect_err("it is shared");
            assert!(matches!(error, LockError::Nested { .. }), "{error}");
            assert!(error.to_string().contains("not exclusively"), "{error}");
            assert!(error.to_string().contains(&*key), "{error}");
            Locked::Ok(())
        };
        outer.run(inner).await.expect("the outer lock is as it was");
    }
    let both = || Lock::many([&*key, &*other]).manager(&manager);
    let inner = async {
        let error = both().acquire().await.expect_err("they are shared");
        assert!(matches!(error, LockError::Nested { .. }), "{error}");
        both().shared().run(async { Locked::Ok(()) }).await
    };
    both().shared().run(inner).await.expect("the outer lock is as it was");
    assert!(backend.is_free(&key).await);
}
