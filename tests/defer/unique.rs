//! One call for each key.

use super::*;

async fn a_thousand_busy_clicks_are_one_call(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("clicks"));
    let function = noting(&name, &calls).unique();
    let key = backend.key("order:42");
    let held = hold(&locks, &key).await;
    let mut ids = std::collections::HashSet::new();
    for click in 0..1_000_u64 {
        let error = busy(&locks, &key).await;
        match function.clone().manager(&locks).later(error, (click,)).await {
            LockError::Deferred { id, due, .. } => {
                assert!(due <= SOON);
                ids.insert(id);
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!((ids.len(), count(&locks, &name, JobState::Waiting).await), (1, 1));
    held.release().await.unwrap();

    // Of another key it is another one.
    put(&locks, &function, 7).await;
    let working = tokio::spawn(worker(&locks, &function).run());
    calls.become_so_many(2).await;
    nothing_is_left(&locks, &name).await;
    let mut all = calls.all();
    all.sort_unstable();
    assert_eq!(all, [0, 7], "the first call's arguments stay");

    // What is done does not count any more.
    let held = hold(&locks, &key).await;
    let error = busy(&locks, &key).await;
    let again = function.clone().manager(&locks).later(error, (8,)).await;
    assert!(matches!(again, LockError::Deferred { .. }));
    held.release().await.unwrap();
    calls.become_so_many(3).await;
    nothing_is_left(&locks, &name).await;
    locks.shutdown(IN_TIME).await.unwrap();
    working.await.unwrap().unwrap();
    forget(backend).await;
}

/// An application may seed its random numbers, in every process alike.
async fn calls_of_processes_that_seed_alike_are_two(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("seeded"));
    let function = noting(&name, &calls).delay(LATER);
    fastrand::seed(42);
    let one = put(&locks, &function, 1).await;
    fastrand::seed(42);
    let other = put(&locks, &function, 2).await;
    assert_ne!(one, other);
    assert_eq!(count(&locks, &name, JobState::Waiting).await, 2);
    for id in [one, other] {
        assert!(locks.deferrer().remove(name.as_str().into(), id).await.unwrap());
    }
    forget(backend).await;
}

lockmacro_tests::on_every_backend!(
    a_thousand_busy_clicks_are_one_call,
    calls_of_processes_that_seed_alike_are_two,
);
