//! A future that is dropped at any point leaves no key behind.

use lockmacro_runtime::LockGuard;
use lockmacro_tests::{Backend, Polled, drop_after_polls, on};
use tokio::time::timeout;

use crate::{CONFIRM_WINDOW, IN_TIME, LONG_TTL, Locked, keys, lock, many, ms, two_managers};

/// More polls than any of these futures needs.
const ENOUGH: usize = 400;

/// Waits until another process would get each of the keys, sooner than one that was left behind
/// would end.
async fn become_free(backend: &Backend, keys: &[String]) {
    for key in keys {
        backend.becomes_free(key, CONFIRM_WINDOW * 4 / 5).await;
    }
}

#[on(memory, redis, slots, postgres, both_runtimes)]
async fn an_acquire_dropped_at_any_point_leaves_no_key(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<3>(backend));
    for polls in 0..ENOUGH {
        let polled = drop_after_polls(many(&manager, &keys).acquire(), polls).await;
        let done = matches!(&polled, Polled::Completed(Ok(_)));
        drop(polled);
        become_free(backend, &keys).await;
        if done {
            return;
        }
    }
    panic!("it never completed");
}

/// The middle one of three keys stays held.
#[on(memory, redis, slots, postgres, both_runtimes)]
async fn a_waiter_dropped_at_any_point_leaves_no_key(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<3>(backend).await;
    let guard = lock(&theirs, &keys[1]).acquire().await.expect("free");
    for polls in 0..ENOUGH {
        let waiter = many(&ours, &keys).wait_forever().acquire();
        // It does not ask to be polled again when it is in the queue.
        let joins = timeout(ms(100), drop_after_polls(waiter, polls)).await.is_err();
        become_free(backend, &[keys[0].clone(), keys[2].clone()]).await;
        if joins {
            guard.release().await.expect("still held");
            // Nobody is left in the queue to whom it would be handed off.
            return become_free(backend, &keys).await;
        }
    }
    panic!("it never was in the queue");
}

#[on(memory, redis, slots, redlock, postgres, both_runtimes)]
async fn a_waiter_dropped_at_any_point_of_its_grant_leaves_no_key(backend: &Backend) {
    let (ours, theirs, keys) = two_managers::<3>(backend).await;
    for polls in 0..ENOUGH {
        // The last dropped waiter may have asked once more, and is released again.
        let guard = lock(&theirs, &keys[1]).wait(LONG_TTL).acquire().await.expect("free");
        let waiter = many(&ours, &keys).wait_forever().acquire();
        let waiter = crate::until_it_holds(backend, &keys[0], waiter).await;
        guard.release().await.expect("still held");
        let polled = timeout(IN_TIME, drop_after_polls(waiter, polls)).await.expect("in time");
        let done = matches!(&polled, Polled::Completed(Ok(_)));
        drop(polled);
        become_free(backend, &keys).await;
        if done {
            return;
        }
    }
    panic!("it never completed");
}

#[on(memory, redis, slots, redlock, postgres, both_runtimes)]
async fn a_body_dropped_at_any_point_leaves_no_key(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<3>(backend));
    for polls in 0..ENOUGH {
        let body = async {
            for _ in 0..5 {
                assert!(LockGuard::current().is_some_and(|guard| guard.is_held()));
                tokio::task::yield_now().await;
            }
            Locked::Ok(())
        };
        let polled = drop_after_polls(many(&manager, &keys).run(body), polls).await;
        become_free(backend, &keys).await;
        match polled {
            Polled::Completed(Ok(())) => return,
            // The last dropped request may have been in flight, and is released after its arrival.
            Polled::Completed(Err(error)) => assert!(error.is_busy(), "{error}"),
            Polled::Dropped => {}
        }
    }
    panic!("it never completed");
}

#[on(memory, redis, slots, redlock, postgres, both_runtimes)]
async fn a_release_dropped_at_any_point_leaves_no_key(backend: &Backend) {
    let (manager, keys) = (backend.manager().await, keys::<3>(backend));
    for polls in 0..ENOUGH {
        let guard = many(&manager, &keys).acquire().await.expect("free");
        let polled = drop_after_polls(guard.release(), polls).await;
        become_free(backend, &keys).await;
        if let Polled::Completed(result) = polled {
            return result.expect("released");
        }
    }
    panic!("it never completed");
}
