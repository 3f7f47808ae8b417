//! A waiter for several keys that leaves at any point leaves no key behind.

use lockmacro_tests::{Backend, Polled, drop_after_polls, on};
use tokio::time::timeout;

use crate::{CONFIRM_WINDOW, IN_TIME, LONG_TTL, lock, many, ms, two_managers};

/// More polls than any of these futures needs.
const ENOUGH: usize = 400;

/// Waits until another process would get each of the keys, sooner than one that was left behind
/// would end.
async fn become_free(backend: &Backend, keys: &[String]) {
    for key in keys {
        backend.becomes_free(key, CONFIRM_WINDOW * 4 / 5).await;
    }
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
