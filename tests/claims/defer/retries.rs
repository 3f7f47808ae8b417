//! Calls that fail.

use std::sync::atomic::AtomicU32;

use super::*;

/// A function that fails so often before it is done.
fn failing(name: &str, failures: u32) -> (DeferredFn<(u64,)>, Arc<AtomicU32>) {
    let tries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let function = DeferredFn::new(name, (argument("number"),), move |(_,): (u64,)| {
        let failed = counted.fetch_add(1, Ordering::Relaxed) < failures;
        async move { if failed { Err("out of stock") } else { Ok(()) } }
    });
    (function.delay(SHORT_DELAY), tries)
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_call_that_fails_is_tried_again_and_is_a_dead_job_in_the_end(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("again"));
    let (function, tries) = failing(&name, 3);
    let working = start(&locks, &function);
    put(&locks, &function, 1).await;
    eventually("it is done", TEST_TIMEOUT, async || tries.load(Ordering::Relaxed) == 4).await;
    nothing_is_left(&locks, &name).await;
    ends(&locks, working).await;

    let locks = manager(backend).await;
    let (function, tries) = failing(&name, 3);
    let function = function.attempts(3);
    let working = start(&locks, &function);
    let id = put(&locks, &function, 7).await;
    let dead = dead_job(&locks, &name).await;
    assert_eq!(tries.load(Ordering::Relaxed), 3);
    assert_eq!((&dead.id, dead.attempts, dead.arguments.as_str()), (&id, 3, "[7]"));
    assert_eq!(dead.error.as_deref(), Some("out of stock"));
    // Tried again by a person, it has all its attempts, and this one succeeds.
    assert_eq!(locks.job_queue().retry(name.as_str().into(), id).await, Ok(true));
    nothing_is_left(&locks, &name).await;
    assert_eq!(tries.load(Ordering::Relaxed), 4);
    ends_on(backend, &locks, working).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn an_error_that_the_return_type_cannot_carry_is_a_failure(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("silent"));
    let manager = locks.clone();
    let silent = DeferredFn::new(&*name, (argument("number"),), move |(_,): (u64,)| {
        let manager = manager.clone();
        // No key can be empty.
        async move { Lock::new("").manager(&manager).skip_when_busy().run(async {}).await }
    });
    let silent = silent.delay(SHORT_DELAY).attempts(1);
    put(&locks, &silent, 1).await;
    let working = start(&locks, &silent);
    let dead = dead_job(&locks, &name).await;
    let error = dead.error.expect("it failed");
    assert!(error.contains("not a usable key"), "{error}");
    remove(&locks, &name, dead.id).await;
    ends_on(backend, &locks, working).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_body_that_goes_on_without_an_inner_lock_is_done(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("inner"));
    let (manager, noted, key) = (locks.clone(), calls.clone(), backend.key("outer"));
    let function = DeferredFn::new(&*name, (argument("number"),), move |(number,): (u64,)| {
        let (manager, noted, key) = (manager.clone(), noted.clone(), key.clone());
        async move {
            let body = async {
                noted.add(number);
                Lock::new("").manager(&manager).skip_when_busy().run(async {}).await;
                Ok::<(), LockError>(())
            };
            Lock::new(key).manager(&manager).run(body).await
        }
    });
    let function = function.delay(SHORT_DELAY);
    put(&locks, &function, 1).await;
    let working = start(&locks, &function);
    calls.reach(1).await;
    nothing_is_left(&locks, &name).await;
    assert_eq!(calls.all(), [1]);
    ends_on(backend, &locks, working).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_call_that_is_busy_again_is_stored_once_whatever_its_arguments(backend: &Backend) {
    type Stock = std::collections::HashMap<String, u64>;
    let (locks, name, key) = (manager(backend).await, name("map"), backend.key("busy"));
    let function = under(&name, &key, &locks, |_: Stock| async {});
    let held = hold(&locks, &key).await;
    let stock: Stock = (0..20).map(|nth| (format!("sku-{nth}"), nth)).collect();
    defer(&locks, &function, &key, (stock,)).await;
    let working = start(&locks, &function);
    eventually("it was busy again", TEST_TIMEOUT, async || {
        first(&locks, &name, JobState::Waiting).await.is_some_and(|job| job.busy >= 2)
    })
    .await;
    let left = count(&locks, &name, JobState::Waiting).await;
    assert!(left <= 1, "{left} calls were stored");
    held.release().await.unwrap();
    nothing_is_left(&locks, &name).await;
    ends_on(backend, &locks, working).await;
}
