//! Calls that are deferred inside of another one's body.

use super::*;

#[on(memory, redis, postgres, both_runtimes)]
async fn a_call_that_is_deferred_inside_of_another_is_stored_once(backend: &Backend) {
    let (locks, calls) = (manager(backend).await, Calls::default());
    let (outer, inner, key) = (name("outer"), name("inner"), backend.key("order:1"));
    let stored = noting(&inner, &calls).delay(LONG_TTL);
    let tries = Calls::default();
    let (manager, counted, its_key, its_inner) =
        (locks.clone(), tries.clone(), key.clone(), stored.clone());
    let function = DeferredFn::new(&*outer, (argument("number"),), move |(number,): (u64,)| {
        let (manager, counted, key) = (manager.clone(), counted.clone(), its_key.clone());
        let inner = its_inner.clone().manager(&manager);
        async move {
            counted.add(number);
            // Twice with the same argument: two calls. And one with another.
            for argument in [7, 7, 8] {
                match Lock::new(key.as_str()).ttl(LONG_TTL).manager(&manager).acquire().await {
                    Ok(lock) => lock.release().await?,
                    Err(busy) => match inner.clone().defer(busy, (argument,)).await {
                        LockError::Deferred { .. } => {}
                        other => return Err(other),
                    },
                }
            }
            // As `inner(id).await?` would have ended it.
            Lock::new(key.as_str()).ttl(LONG_TTL).manager(&manager).acquire().await.map(drop)
        }
    });
    let function = function.delay(SHORT_DELAY);
    let held = hold(&locks, &key).await;
    put(&locks, &function, 1).await;
    let working = start(&locks, &function);
    eventually("tried again and again", TEST_TIMEOUT, async || tries.all().len() >= 3).await;
    assert_eq!(count(&locks, &inner, JobState::Waiting).await, 3, "one for each that was busy");
    held.release().await.unwrap();
    nothing_is_left(&locks, &outer).await;

    let job_queue = locks.job_queue();
    let page = job_queue.list(inner.as_str().into(), JobState::Waiting, 0, 9).await.unwrap();
    for call in page.jobs {
        assert!(job_queue.retry(inner.as_str().into(), call.id).await.unwrap());
    }
    let also_working = start(&locks, &stored);
    calls.reach(3).await;
    nothing_is_left(&locks, &inner).await;
    let mut all = calls.all();
    all.sort_unstable();
    assert_eq!(all, [7, 7, 8]);
    ends(&locks, working).await;
    also_working.await.unwrap().unwrap();
    forget(backend).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn what_is_deferred_inside_of_another_body_fails_that_one_if_it_is_passed_on(
    backend: &Backend,
) {
    let (locks, calls) = (manager(backend).await, Calls::default());
    let (outer, inner, key) = (name("outer"), name("inner"), backend.key("order:1"));
    let stored = noting(&inner, &calls).delay(LONG_TTL);
    let (manager, its_key, its_inner) = (locks.clone(), key.clone(), stored.manager(&locks));
    let function = DeferredFn::new(&*outer, (argument("number"),), move |(number,): (u64,)| {
        let (manager, key, inner) = (manager.clone(), its_key.clone(), its_inner.clone());
        async move {
            let lock = Lock::new(key).ttl(LONG_TTL).manager(&manager);
            match lock.acquire().await {
                Ok(lock) => lock.release().await,
                Err(busy) => Err(inner.defer(busy, (number,)).await),
            }
        }
    });
    let function = function.delay(SHORT_DELAY).attempts(2);
    let held = hold(&locks, &key).await;
    let id = put(&locks, &function, 1).await;
    let working = start(&locks, &function);
    let dead = dead_job(&locks, &outer).await;
    let error = dead.error.expect("it failed");
    let says = "the call was stored, and is due in ";
    assert!(error.contains(says) && error.contains(&key), "{error}");
    let waiting = count(&locks, &inner, JobState::Waiting).await;
    assert_eq!(waiting, 1, "stored by the first try, and found by the second");
    held.release().await.unwrap();
    let stored = first(&locks, &inner, JobState::Waiting).await.expect("it waits");
    remove(&locks, &inner, stored.id).await;
    remove(&locks, &outer, id).await;
    ends_on(backend, &locks, working).await;
}

/// The same function with another argument is another call.
#[on(memory, redis, postgres, both_runtimes)]
async fn a_call_of_the_same_function_inside_of_its_body_is_stored(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("itself"));
    let key = backend.key("order:1");
    let held = hold(&locks, &key).await;
    let busy = busy(&locks, &key).await;
    let (manager, noted, stored) = (locks.clone(), calls.clone(), name.clone());
    let function = DeferredFn::new(&*name, (argument("number"),), move |(number,): (u64,)| {
        let (noted, busy, manager) = (noted.clone(), busy.clone(), manager.clone());
        let other = noting(&stored, &noted).manager(&manager);
        async move {
            noted.add(number);
            if number > 0 {
                let deferred = other.defer(busy, (number - 1,)).await;
                assert!(matches!(deferred, LockError::Deferred { .. }), "{deferred}");
            }
        }
    });
    let function = function.delay(SHORT_DELAY);
    put(&locks, &function, 2).await;
    let working = start(&locks, &function);
    calls.reach(3).await;
    nothing_is_left(&locks, &name).await;
    assert_eq!(calls.all(), [2, 1, 0]);
    held.release().await.unwrap();
    ends_on(backend, &locks, working).await;
}
