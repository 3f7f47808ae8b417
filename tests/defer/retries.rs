//! Calls that fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A function that fails so often before it is done.
fn failing(name: &str, failures: u32) -> (DeferredFn<(u64,)>, Arc<AtomicU32>) {
    let tries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let function = DeferredFn::new(name, move |(_,): (u64,)| {
        let failed = counted.fetch_add(1, Ordering::Relaxed) < failures;
        async move { if failed { Err("out of stock") } else { Ok(()) } }
    });
    (function.delay(SOON), tries)
}

async fn a_call_that_fails_is_tried_again(backend: &Backend) {
    let (locks, name) = (backend.manager().await, name("again"));
    let (function, tries) = failing(&name, 3);
    let working = tokio::spawn(worker(&locks, &function).run());
    put(&locks, &function, 1).await;
    eventually("it is done", IN_TIME, async || tries.load(Ordering::Relaxed) == 4).await;
    nothing_is_left(&locks, &name).await;
    locks.shutdown(IN_TIME).await.unwrap();
    working.await.unwrap().unwrap();
    forget(backend).await;
}

async fn a_call_that_fails_too_often_is_a_dead_letter_with_its_error(backend: &Backend) {
    let (locks, name) = (backend.manager().await, name("dead"));
    let (function, tries) = failing(&name, 3);
    let function = function.attempts(3);
    let working = tokio::spawn(worker(&locks, &function).run());
    let id = put(&locks, &function, 7).await;
    eventually("given up", IN_TIME, async || count(&locks, &name, JobState::Dead).await == 1).await;
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
    locks.shutdown(IN_TIME).await.unwrap();
    working.await.unwrap().unwrap();
    forget(backend).await;
}

async fn a_panic_is_a_failure(backend: &Backend) {
    let (locks, name) = (backend.manager().await, name("panic"));
    let function = DeferredFn::new(&*name, |(number,): (u64,)| async move {
        assert_ne!(number, 13, "bad luck");
        Ok::<(), LockError>(())
    });
    let function = function.delay(SOON).attempts(1);
    let working = tokio::spawn(worker(&locks, &function).run());
    put(&locks, &function, 13).await;
    eventually("given up", IN_TIME, async || count(&locks, &name, JobState::Dead).await == 1).await;
    let deferrer = locks.deferrer();
    let page = deferrer.list(name.as_str().into(), JobState::Dead, 0, 1).await.unwrap();
    assert_eq!(page.jobs[0].error.as_deref(), Some("it panicked"));
    assert!(deferrer.remove(name.as_str().into(), page.jobs[0].id.clone()).await.unwrap());
    locks.shutdown(IN_TIME).await.unwrap();
    working.await.unwrap().unwrap();
    forget(backend).await;
}

lockmacro_tests::on_every_backend!(
    a_call_that_fails_is_tried_again,
    a_call_that_fails_too_often_is_a_dead_letter_with_its_error,
    a_panic_is_a_failure,
);
