//! Calls that no worker can run.

use super::*;

async fn arguments_that_do_not_fit_are_a_dead_letter_at_once(backend: &Backend) {
    let (locks, name) = (backend.manager().await, name("unfit"));
    // What an earlier version of the program has stored.
    let before = DeferredFn::new(&*name, (argument("number"),), |(_,): (u64,)| async {
        Ok::<(), LockError>(())
    });
    put(&locks, &before.delay(SOON), 42).await;
    let now = DeferredFn::new(&*name, (argument("number"),), |(_,): (String,)| async {
        Ok::<(), LockError>(())
    });
    let working = tokio::spawn(worker(&locks, &now).run());
    eventually("given up", IN_TIME, async || count(&locks, &name, JobState::Dead).await == 1).await;
    let deferrer = locks.deferrer();
    let page = deferrer.list(name.as_str().into(), JobState::Dead, 0, 1).await.unwrap();
    let (id, error) = (page.jobs[0].id.clone(), page.jobs[0].error.clone().unwrap());
    assert!(error.contains("`number`: invalid type: integer `42`, expected a string"), "{error}");
    assert!(deferrer.remove(name.as_str().into(), id.clone()).await.unwrap());
    assert!(!deferrer.remove(name.as_str().into(), id).await.unwrap());
    locks.shutdown(IN_TIME).await.unwrap();
    working.await.unwrap().unwrap();
    forget(backend).await;
}

async fn a_function_that_a_worker_does_not_know_is_left_to_one_that_does(backend: &Backend) {
    let (locks, calls) = (backend.manager().await, Calls::default());
    let (known, unknown) = (name("known"), name("unknown"));
    let (function, other) = (noting(&known, &calls), noting(&unknown, &calls));
    put(&locks, &other, 1).await;
    put(&locks, &function, 2).await;
    let working = tokio::spawn(worker(&locks, &function).run());
    calls.become_so_many(1).await;
    assert_eq!(calls.all(), [2]);
    assert_eq!(count(&locks, &unknown, JobState::Waiting).await, 1, "it can be seen");
    let knowing = tokio::spawn(worker(&locks, &other).run());
    calls.become_so_many(2).await;
    nothing_is_left(&locks, &unknown).await;
    locks.shutdown(IN_TIME).await.unwrap();
    working.await.unwrap().unwrap();
    knowing.await.unwrap().unwrap();
    forget(backend).await;
}

lockmacro_tests::on_every_backend!(
    arguments_that_do_not_fit_are_a_dead_letter_at_once,
    a_function_that_a_worker_does_not_know_is_left_to_one_that_does,
);
