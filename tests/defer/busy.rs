//! Calls that find their lock busy once more: that is no failure.

use std::future::pending;

use lockmacro_runtime::defer::{Settled, TakeOptions, When};
use lockmacro_tests::{Server, on};

use super::*;

/// As the attribute writes it: a body of a few milliseconds under `key`.
fn locked(name: &str, key: &str, manager: &LockManager, calls: &Calls) -> DeferredFn<(u64,)> {
    let again = (name.to_owned(), key.to_owned(), manager.clone(), calls.clone());
    DeferredFn::new(name, (argument("number"),), move |(number,): (u64,)| {
        let (name, key, manager, calls) = again.clone();
        async move {
            let lock = Lock::new(key.as_str()).ttl(LONG_TTL).manager(&manager);
            match lock.acquire().await {
                Ok(lock) => {
                    let body = async {
                        tokio::time::sleep(SHORT_DELAY / 4).await;
                        calls.add(number);
                        Ok(())
                    };
                    lock.run(body).await
                }
                Err(busy) => {
                    let function = locked(&name, &key, &manager, &calls).manager(&manager);
                    Err(function.defer(busy, (number,)).await)
                }
            }
        }
    })
    .delay(SHORT_DELAY)
}

#[on(memory, redis, both_runtimes)]
async fn all_calls_of_one_key_are_done(backend: &Backend) {
    const CALLS: u64 = 60;
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("hot"));
    let other = manager(backend).await;
    let key = backend.key("order:1");
    // One failure would be enough to give it up.
    let function = |locks| locked(&name, &key, locks, &calls).attempts(1);
    let held = hold(&locks, &key).await;
    for number in 0..CALLS {
        let error = busy(&locks, &key).await;
        let deferred = function(&locks).manager(&locks).defer(error, (number,)).await;
        assert!(matches!(deferred, LockError::Deferred { .. }), "{deferred}");
    }
    held.release().await.unwrap();
    let working = [&locks, &other].map(|locks| tokio::spawn(worker(locks, &function(locks)).run()));
    eventually("all are done", TEST_TIMEOUT * 2, async || {
        assert_eq!(count(&locks, &name, JobState::Dead).await, 0, "none has failed");
        calls.all().len() as u64 == CALLS
    })
    .await;
    nothing_is_left(&locks, &name).await;
    assert_eq!(calls.all().len() as u64, CALLS, "each was run once");
    for (locks, working) in [locks, other].into_iter().zip(working) {
        locks.shutdown(TEST_TIMEOUT).await.unwrap();
        working.await.unwrap().unwrap();
    }
    forget(backend).await;
}

#[on(memory, redis, both_runtimes)]
async fn a_busy_call_is_reported_as_busy_and_not_as_tried(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("busy"));
    let key = backend.key("order:1");
    let function = locked(&name, &key, &locks, &calls).attempts(1);
    let held = hold(&locks, &key).await;
    let error = busy(&locks, &key).await;
    function.clone().manager(&locks).defer(error, (1,)).await;
    let working = tokio::spawn(worker(&locks, &function).run());
    eventually("it was busy again and again", TEST_TIMEOUT, async || {
        let deferrer = locks.deferrer();
        let page = deferrer.list(name.as_str().into(), JobState::Waiting, 0, 1).await.unwrap();
        page.jobs.first().is_some_and(|call| {
            let error = call.error.as_deref().unwrap_or_default();
            assert!(call.busy == 0 || error.contains("is locked by"), "{error}");
            assert_eq!(call.attempts, 0);
            call.busy >= 3
        })
    })
    .await;
    held.release().await.unwrap();
    calls.reach(1).await;
    nothing_is_left(&locks, &name).await;
    locks.shutdown(TEST_TIMEOUT).await.unwrap();
    working.await.unwrap().unwrap();
    forget(backend).await;
}

#[on(memory, redis, both_runtimes)]
async fn a_call_that_is_busy_is_due_when_the_lease_of_the_holder_ends(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("lease"));
    let key = backend.key("order:1");
    let function = locked(&name, &key, &locks, &calls).delay(LONG_TTL);
    let lock = Lock::new(key.as_str()).ttl(LONG_TTL / 3).manager(&locks);
    let held = lock.acquire().await.expect("it is free");
    let error = busy(&locks, &key).await;
    function.clone().delay(Duration::ZERO).manager(&locks).defer(error, (1,)).await;
    let working = tokio::spawn(worker(&locks, &function).run());
    let found = async || {
        let page = locks.deferrer().list(name.as_str().into(), JobState::Waiting, 0, 1).await;
        page.unwrap().jobs.into_iter().find(|call| call.busy > 0)
    };
    eventually("it was busy", TEST_TIMEOUT, async || found().await.is_some()).await;
    let call = found().await.expect("it waits");
    // A third of a minute, and some of the pause of about a minute that there is otherwise.
    assert!(
        matches!(call.when, When::In(left) if left < Duration::from_secs(42)),
        "due {:?}",
        call.when
    );
    held.release().await.unwrap();
    assert!(locks.deferrer().remove(name.as_str().into(), call.id).await.unwrap());
    locks.shutdown(TEST_TIMEOUT).await.unwrap();
    working.await.unwrap().unwrap();
    forget(backend).await;
}

/// A lock without an end is somebody's mistake, which a person has to see.
#[on(memory, redis, both_runtimes)]
async fn a_call_that_is_busy_for_ever_becomes_a_dead_letter_in_the_end(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("for-ever"));
    let key = backend.key("order:1");
    let function = locked(&name, &key, &locks, &calls).delay(LONG_TTL);
    let held = hold(&locks, &key).await;
    let error = busy(&locks, &key).await;
    function.clone().delay(Duration::ZERO).manager(&locks).defer(error, (1,)).await;
    let deferrer = locks.deferrer();
    // As if a worker had found it busy so often.
    for _ in 0..1_000 {
        let order = TakeOptions::new([name.as_str()], 1, LONG_TTL);
        let mut taken = deferrer.take(order, Box::pin(pending())).await.unwrap();
        let how = Settled::busy(Duration::ZERO, "held");
        assert!(deferrer.settle(taken.pop().expect("one"), how).await.unwrap());
    }
    let working = tokio::spawn(worker(&locks, &function).run());
    eventually("given up", TEST_TIMEOUT, async || count(&locks, &name, JobState::Dead).await == 1)
        .await;
    let page = deferrer.list(name.as_str().into(), JobState::Dead, 0, 1).await.unwrap();
    let error = page.jobs[0].error.as_deref().unwrap_or_default();
    assert!(
        error.starts_with("its lock could not be acquired 1000 times: ") && error.contains(&key),
        "{error}"
    );
    assert_eq!(deferrer.remove_dead(name.as_str().into(), 9).await, Ok(1));
    held.release().await.unwrap();
    locks.shutdown(TEST_TIMEOUT).await.unwrap();
    working.await.unwrap().unwrap();
    forget(backend).await;
}

/// The locks of its body are released before the call returns to the queue.
#[on(memory, redis, both_runtimes)]
async fn a_call_that_a_stopped_worker_returns_is_not_busy(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("rolling"));
    let key = backend.key("order:1");
    let begun = Arc::new(tokio::sync::Semaphore::new(0));
    let function = |manager: &LockManager| {
        let (manager, key, begun) = (manager.clone(), key.clone(), Arc::clone(&begun));
        DeferredFn::new(&*name, (argument("number"),), move |(_,): (u64,)| {
            let (manager, key, begun) = (manager.clone(), key.clone(), Arc::clone(&begun));
            async move {
                let lock = Lock::new(key).ttl(LONG_TTL).manager(&manager).acquire().await?;
                lock.run(async {
                    begun.add_permits(1);
                    pending::<Result<(), LockError>>().await
                })
                .await
            }
        })
        .delay(LONG_TTL)
        .attempts(1)
    };
    put(&locks, &function(&locks).delay(Duration::ZERO), 1).await;
    // Each time another process runs it, and is stopped while the next one waits for work.
    let start = async || {
        let locks = manager(backend).await;
        let working = worker(&locks, &function(&locks)).grace(Duration::ZERO).run();
        (locks.clone(), tokio::spawn(working))
    };
    let mut one = start().await;
    for _ in 0..8 {
        begun.acquire().await.unwrap().forget();
        let next = start().await;
        one.0.shutdown(TEST_TIMEOUT).await.unwrap();
        one.1.await.unwrap().unwrap();
        one = next;
    }
    let again = async || {
        assert_eq!(count(&locks, &name, JobState::Dead).await, 0, "it was busy");
        begun.available_permits() == 1
    };
    eventually("it runs", TEST_TIMEOUT, again).await;
    one.0.shutdown(TEST_TIMEOUT).await.unwrap();
    one.1.await.unwrap().unwrap();
    let page = locks.deferrer().list(name.as_str().into(), JobState::Waiting, 0, 1).await.unwrap();
    assert_eq!((page.jobs[0].attempts, page.jobs[0].busy), (0, 0));
    assert!(locks.deferrer().remove(name.into(), page.jobs[0].id.clone()).await.unwrap());
    forget(backend).await;
}

/// A try is a body that runs.
#[tokio::test]
async fn a_call_whose_lock_cannot_be_asked_for_has_not_failed() {
    let (mut here, there) = (Server::start(), Server::start());
    let keeper = connect(&there).await;
    // The call fails soon, and waits for its own server again.
    let builder = LockManager::builder().timeout(Duration::from_millis(300));
    let locks = builder.deferrer(keeper.deferrer()).connect(&here.url()).await.unwrap();
    let calls = Calls::default();
    let function = locked("f", "order:1", &locks, &calls).attempts(1);
    put(&keeper, &function, 1).await;
    here.kill();
    let working = tokio::spawn(worker(&locks, &function).run());
    eventually("it is tried in vain", TEST_TIMEOUT, async || {
        let page = keeper.deferrer().list("f".into(), JobState::Waiting, 0, 1).await.unwrap();
        page.jobs.first().is_some_and(|call| call.busy > 1)
    })
    .await;
    here.restart();
    calls.reach(1).await;
    nothing_is_left(&keeper, "f").await;
    locks.shutdown(TEST_TIMEOUT).await.unwrap();
    working.await.unwrap().unwrap();
}
