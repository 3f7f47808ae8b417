//! Calls that fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

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

#[on(memory, redis, both_runtimes)]
async fn a_call_that_fails_is_tried_again(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("again"));
    let (function, tries) = failing(&name, 3);
    let working = tokio::spawn(worker(&locks, &function).run());
    put(&locks, &function, 1).await;
    eventually("it is done", TEST_TIMEOUT, async || tries.load(Ordering::Relaxed) == 4).await;
    nothing_is_left(&locks, &name).await;
    locks.shutdown(TEST_TIMEOUT).await.unwrap();
    working.await.unwrap().unwrap();
    forget(backend).await;
}

#[on(memory, redis, both_runtimes)]
async fn a_call_that_fails_too_often_is_a_dead_letter_with_its_error(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("dead"));
    let (function, tries) = failing(&name, 3);
    let function = function.attempts(3);
    let working = tokio::spawn(worker(&locks, &function).run());
    let id = put(&locks, &function, 7).await;
    eventually("given up", TEST_TIMEOUT, async || count(&locks, &name, JobState::Dead).await == 1)
        .await;
    assert_eq!(tries.load(Ordering::Relaxed), 3);
    let deferrer = locks.deferrer();
    let page = deferrer.list(name.as_str().into(), JobState::Dead, 0, 10).await.unwrap();
    let dead = &page.jobs[0];
    assert_eq!((&dead.id, dead.attempts, dead.arguments.as_str()), (&id, 3, "[7]"));
    assert_eq!(dead.error.as_deref(), Some("out of stock"));

    // Tried again by a person, it has all its attempts, and this one succeeds.
    assert!(deferrer.retry(name.as_str().into(), id).await.unwrap());
    nothing_is_left(&locks, &name).await;
    assert_eq!(tries.load(Ordering::Relaxed), 4);
    locks.shutdown(TEST_TIMEOUT).await.unwrap();
    working.await.unwrap().unwrap();
    forget(backend).await;
}

#[on(memory, redis, both_runtimes)]
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
    let working = tokio::spawn(worker(&locks, &silent).run());
    eventually("given up", TEST_TIMEOUT, async || count(&locks, &name, JobState::Dead).await == 1)
        .await;
    let deferrer = locks.deferrer();
    let page = deferrer.list(name.as_str().into(), JobState::Dead, 0, 1).await.unwrap();
    let error = page.jobs[0].error.clone().unwrap();
    assert!(error.contains("not a usable key"), "{error}");
    assert!(deferrer.remove(name.as_str().into(), page.jobs[0].id.clone()).await.unwrap());
    locks.shutdown(TEST_TIMEOUT).await.unwrap();
    working.await.unwrap().unwrap();
    forget(backend).await;
}

#[on(memory, redis, both_runtimes)]
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
    let working = tokio::spawn(worker(&locks, &function).run());
    calls.reach(1).await;
    nothing_is_left(&locks, &name).await;
    assert_eq!(calls.all(), [1]);
    locks.shutdown(TEST_TIMEOUT).await.unwrap();
    working.await.unwrap().unwrap();
    forget(backend).await;
}

#[on(memory, redis, both_runtimes)]
async fn a_call_that_is_busy_again_is_stored_once_whatever_its_arguments(backend: &Backend) {
    type Stock = std::collections::HashMap<String, u64>;
    let (locks, name, key) = (manager(backend).await, name("map"), backend.key("busy"));
    let (manager, its_name, its_key) = (locks.clone(), name.clone(), key.clone());
    // As the attribute writes it.
    fn function(name: String, key: String, manager: LockManager) -> DeferredFn<(Stock,)> {
        DeferredFn::new(&*name.clone(), (argument("stock"),), move |(stock,): (Stock,)| {
            let (name, key, manager) = (name.clone(), key.clone(), manager.clone());
            async move {
                match Lock::new(key.as_str()).manager(&manager).acquire().await {
                    Ok(lock) => lock.run(async { Ok(()) }).await,
                    Err(busy) => {
                        let again = function(name, key, manager.clone()).manager(&manager);
                        Err(again.defer(busy, (stock,)).await)
                    }
                }
            }
        })
        .delay(SHORT_DELAY)
    }
    let function = function(its_name, its_key, manager);
    let held = hold(&locks, &key).await;
    let stock: Stock = (0..20).map(|nth| (format!("sku-{nth}"), nth)).collect();
    let error = busy(&locks, &key).await;
    function.clone().manager(&locks).defer(error, (stock,)).await;
    let working = tokio::spawn(worker(&locks, &function).run());
    let deferrer = locks.deferrer();
    eventually("it was busy again", TEST_TIMEOUT, async || {
        let page = deferrer.list(name.as_str().into(), JobState::Waiting, 0, 9).await.unwrap();
        page.jobs.first().is_some_and(|job| job.busy >= 2)
    })
    .await;
    let left = count(&locks, &name, JobState::Waiting).await;
    assert!(left <= 1, "{left} calls were stored");
    held.release().await.unwrap();
    nothing_is_left(&locks, &name).await;
    locks.shutdown(TEST_TIMEOUT).await.unwrap();
    working.await.unwrap().unwrap();
    forget(backend).await;
}
