//! A future or a guard that is dropped at any point leaves no lock behind.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use lockmacro_runtime::{Lock, LockGuard, LockManager};
use lockmacro_tests::{Backend, Polled, drop_after_polls, on};

use crate::{LONG_TTL, Locked, TEST_TIMEOUT, granted, lock, ms};

/// More polls than any of these futures needs.
const ENOUGH: usize = 400;

fn one_key_and_three(backend: &Backend) -> [Vec<String>; 2] {
    let key = |name: &str| backend.key(&format!("order:{name}"));
    [vec![key("42")], vec![key("a"), key("b"), key("c")]]
}

/// A lock on all of them.
fn all(manager: &LockManager, keys: &[String]) -> Lock {
    Lock::many(keys).ttl(LONG_TTL).manager(manager)
}

/// Has a future dropped after each number of polls, until one of them completes.
async fn at_each_point(
    backend: &Backend,
    keys: &[String],
    dropped_after: impl AsyncFn(usize) -> Option<()>,
) {
    for polls in 0..ENOUGH {
        let done = dropped_after(polls).await;
        for key in keys {
            backend.becomes_free(key, TEST_TIMEOUT).await;
        }
        if done.is_some() {
            return;
        }
    }
    panic!("it never completed");
}

/// What a future has returned, if it was not dropped before. The last dropped request may have been
/// in flight when the lock was free: when it arrives after that, it is released again.
fn completed<T>(polled: Polled<Locked<T>>) -> Option<T> {
    match polled {
        Polled::Completed(Ok(value)) => Some(value),
        Polled::Completed(Err(error)) => {
            assert!(error.is_busy(), "{error}");
            None
        }
        Polled::Dropped => None,
    }
}

#[on(memory, redis, slots, cluster, redlock, postgres, both_runtimes)]
async fn an_acquire_dropped_at_any_point_leaves_no_lock(backend: &Backend) {
    let manager = backend.manager().await;
    for keys in one_key_and_three(backend) {
        let acquired = async |polls| {
            let polled = drop_after_polls(all(&manager, &keys).acquire(), polls).await;
            let guard = completed(polled)?;
            guard.release().await.expect("released");
            Some(())
        };
        at_each_point(backend, &keys, acquired).await;
    }
}

#[on(memory, redis, cluster, redlock, postgres, both_runtimes)]
async fn a_refused_acquire_dropped_at_any_point_leaves_the_holder_alone(backend: &Backend) {
    let (ours, theirs) = (backend.manager().await, backend.manager().await);
    let (key, marker) = (backend.key("order:42"), backend.key("marker"));
    let guard = lock(&ours, &key).acquire().await.expect("free");
    for polls in 0..ENOUGH {
        let polled = drop_after_polls(lock(&theirs, &key).acquire(), polls).await;
        // Dropped after it: once the marker is free, the other drop has been dealt with.
        drop(lock(&theirs, &marker).acquire().await.expect("free"));
        backend.becomes_free(&marker, TEST_TIMEOUT).await;
        assert!(!backend.is_free(&key).await, "after {polls} polls");
        if let Polled::Completed(result) = polled {
            assert!(result.expect_err("held").is_busy());
            guard.release().await.expect("released");
            return;
        }
    }
    panic!("it never completed");
}

#[on(memory, redis, slots, cluster, redlock, postgres, both_runtimes)]
async fn a_body_dropped_at_any_point_leaves_no_lock(backend: &Backend) {
    let manager = backend.manager().await;
    for keys in one_key_and_three(backend) {
        let run = async |polls| {
            let body = async {
                for _ in 0..5 {
                    assert!(LockGuard::current().is_some_and(|guard| guard.is_held()));
                    tokio::task::yield_now().await;
                }
                Locked::Ok(())
            };
            completed(drop_after_polls(all(&manager, &keys).run(body), polls).await)
        };
        at_each_point(backend, &keys, run).await;
    }
}

#[on(memory, redis, slots, cluster, redlock, postgres, both_runtimes)]
async fn a_release_dropped_at_any_point_leaves_no_lock(backend: &Backend) {
    let manager = backend.manager().await;
    for keys in one_key_and_three(backend) {
        let released = async |polls| {
            let guard = all(&manager, &keys).acquire().await.expect("free");
            match drop_after_polls(guard.release(), polls).await {
                Polled::Completed(result) => {
                    result.expect("released");
                    Some(())
                }
                Polled::Dropped => None,
            }
        };
        at_each_point(backend, &keys, released).await;
    }
}

#[on(memory, redis, cluster, redlock, postgres, both_runtimes)]
async fn an_aborted_task_leaves_no_lock(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    // Aborted before it ran, during its acquire, and in its body.
    for delay in [0, 200, 500, 1_000, 5_000, 20_000] {
        let (manager, name) = (manager.clone(), key.clone());
        let task = tokio::spawn(async move {
            lock(&manager, &name).run(std::future::pending::<Locked<()>>()).await
        });
        tokio::time::sleep(Duration::from_micros(delay)).await;
        task.abort();
        assert!(task.await.expect_err("aborted").is_cancelled());
        backend.becomes_free(&key, TEST_TIMEOUT).await;
    }
}

/// As docs/leases.md says; a loaded machine may need longer now and then, but not most of the time.
#[on(memory, redis, cluster, redlock, postgres, both_runtimes)]
async fn a_dropped_lock_is_free_within_milliseconds(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let mut times = Vec::new();
    for _ in 0..31 {
        let guard = lock(&ours, &key).acquire().await.expect("free");
        let dropped = Instant::now();
        drop(guard);
        let next = granted(lock(&theirs, &key)).await;
        times.push(dropped.elapsed());
        next.release().await.expect("released");
    }
    times.sort();
    assert!(times[times.len() / 2] < ms(100), "{times:?}");
}

/// As those of std do: a future that stayed pending would hang its caller.
#[on(memory)]
async fn a_future_that_is_polled_after_it_has_ended_panics(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("polled again"));
    let mut acquiring = pin!(lock(&manager, &key).acquire());
    acquiring.as_mut().await.expect("free").release().await.expect("released");
    let again = AssertUnwindSafe(acquiring).catch_unwind().await;
    assert!(again.is_err(), "acquire");
    let mut running = pin!(lock(&manager, &key).run(async { Locked::Ok(7) }));
    assert_eq!(running.as_mut().await, Ok(7));
    let again = AssertUnwindSafe(running).catch_unwind().await;
    assert!(again.is_err(), "run");
}
