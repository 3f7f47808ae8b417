//! Calls that find their lock busy once more: that is no failure.

use lockmacro_runtime::defer::{Settled, When};
use lockmacro_tests::Server;

use super::*;

/// A body of a few milliseconds under `key`.
fn locked(name: &str, key: &str, manager: &LockManager, calls: &Calls) -> DeferredFn<(u64,)> {
    let calls = calls.clone();
    under(name, key, manager, move |number| {
        let calls = calls.clone();
        async move {
            tokio::time::sleep(SHORT_DELAY / 4).await;
            calls.add(number);
        }
    })
}

#[on(memory, redis, postgres, both_runtimes)]
async fn all_calls_of_one_key_are_done(backend: &Backend) {
    const CALLS: u64 = 60;
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("hot"));
    let other = manager(backend).await;
    let key = backend.key("order:1");
    // One failure would be enough to give it up.
    let function = |locks| locked(&name, &key, locks, &calls).attempts(1);
    let held = hold(&locks, &key).await;
    for number in 0..CALLS {
        let deferred = defer(&locks, &function(&locks), &key, (number,)).await;
        assert!(matches!(deferred, LockError::Deferred { .. }), "{deferred}");
    }
    held.release().await.unwrap();
    let working = [&locks, &other].map(|locks| start(locks, &function(locks)));
    eventually("all are done", TEST_TIMEOUT * 2, async || {
        assert_eq!(count(&locks, &name, JobState::Dead).await, 0, "none has failed");
        calls.all().len() as u64 == CALLS
    })
    .await;
    nothing_is_left(&locks, &name).await;
    assert_eq!(calls.all().len() as u64, CALLS, "each was run once");
    for (locks, working) in [locks, other].into_iter().zip(working) {
        ends(&locks, working).await;
    }
    forget(backend).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_busy_call_is_reported_as_busy_and_not_as_tried(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("busy"));
    let key = backend.key("order:1");
    let function = locked(&name, &key, &locks, &calls).attempts(1);
    let held = hold(&locks, &key).await;
    defer(&locks, &function, &key, (1,)).await;
    let working = start(&locks, &function);
    eventually("it was busy again and again", TEST_TIMEOUT, async || {
        first(&locks, &name, JobState::Waiting).await.is_some_and(|call| {
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
    ends_on(backend, &locks, working).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_call_that_is_busy_is_due_when_the_lease_of_the_holder_ends(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("lease"));
    let key = backend.key("order:1");
    let function = locked(&name, &key, &locks, &calls).delay(LONG_TTL);
    let lock = Lock::new(key.as_str()).ttl(LONG_TTL / 3).manager(&locks);
    let held = lock.acquire().await.expect("it is free");
    defer(&locks, &function.clone().delay(Duration::ZERO), &key, (1,)).await;
    let working = start(&locks, &function);
    let found = async || first(&locks, &name, JobState::Waiting).await.filter(|call| call.busy > 0);
    eventually("it was busy", TEST_TIMEOUT, async || found().await.is_some()).await;
    let call = found().await.expect("it waits");
    // A third of a minute, and some of the pause of about a minute that there is otherwise.
    let When::In(left) = call.when else { panic!("due {:?}", call.when) };
    assert!(left < Duration::from_secs(42), "due in {left:?}");
    held.release().await.unwrap();
    remove(&locks, &name, call.id).await;
    ends_on(backend, &locks, working).await;
}

/// A lock without an end is somebody's mistake, which a person has to see.
#[on(memory, redis, postgres, both_runtimes)]
async fn a_call_that_is_busy_for_ever_becomes_a_dead_job_in_the_end(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("for-ever"));
    let key = backend.key("order:1");
    let function = locked(&name, &key, &locks, &calls).delay(LONG_TTL);
    let held = hold(&locks, &key).await;
    defer(&locks, &function.clone().delay(Duration::ZERO), &key, (1,)).await;
    let job_queue = locks.job_queue();
    // As if a worker had found it busy so often.
    for _ in 0..1_000 {
        let taken = take(&locks, &name, LONG_TTL).await;
        let how = Settled::Busy { delay: Duration::ZERO, error: "held".into() };
        assert!(job_queue.settle(taken, how).await.unwrap());
    }
    let working = start(&locks, &function);
    let dead = dead_job(&locks, &name).await;
    let error = dead.error.unwrap_or_default();
    let expected = "its lock could not be acquired 1000 times: ";
    assert!(error.starts_with(expected) && error.contains(&key), "{error}");
    remove(&locks, &name, dead.id).await;
    held.release().await.unwrap();
    ends_on(backend, &locks, working).await;
}

/// The locks of its body are released before the call returns to the queue.
#[on(memory, redis, postgres, both_runtimes)]
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
    let begin = async || {
        let locks = manager(backend).await;
        let working = worker(&locks, &function(&locks)).grace(Duration::ZERO).run();
        (locks.clone(), tokio::spawn(working))
    };
    let (mut current, mut working) = begin().await;
    for _ in 0..8 {
        begun.acquire().await.unwrap().forget();
        let next = begin().await;
        ends(&current, working).await;
        (current, working) = next;
    }
    let again = async || {
        assert_eq!(count(&locks, &name, JobState::Dead).await, 0, "it was busy");
        begun.available_permits() == 1
    };
    eventually("it runs", TEST_TIMEOUT, again).await;
    ends(&current, working).await;
    let call = first(&locks, &name, JobState::Waiting).await.expect("it waits");
    assert_eq!((call.attempts, call.busy), (0, 0));
    remove(&locks, &name, call.id).await;
    forget(backend).await;
}

/// A try is a body that runs.
#[tokio::test]
async fn a_call_whose_lock_cannot_be_asked_for_has_not_failed() {
    let (mut here, there) = (Server::start(), Server::start());
    let keeper = connect(&there).await;
    // The call fails soon, and waits for its own server again.
    let builder = LockManager::builder().timeout(Duration::from_millis(300));
    let locks = builder.job_queue(keeper.job_queue()).connect(&here.url()).await.unwrap();
    let calls = Calls::default();
    let function = locked("f", "order:1", &locks, &calls).attempts(1);
    put(&keeper, &function, 1).await;
    here.kill();
    let working = start(&locks, &function);
    eventually("it is tried in vain", TEST_TIMEOUT, async || {
        first(&keeper, "f", JobState::Waiting).await.is_some_and(|call| call.busy > 1)
    })
    .await;
    here.restart();
    calls.reach(1).await;
    nothing_is_left(&keeper, "f").await;
    ends(&locks, working).await;
}
