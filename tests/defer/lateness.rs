//! How late calls are run.

use std::time::Instant;

use super::*;

/// What a call may be late on a system that has nothing else to do.
const LATE: Duration = Duration::from_millis(50);
/// A machine that has much else to do gets so many chances. One that looks at a fixed beat has none: all
/// calls of a round must be in time.
const ROUNDS: usize = 20;

async fn calls_are_begun_when_they_are_due_and_not_at_a_beat(backend: &Backend) {
    let (locks, other) = (manager(backend).await, manager(backend).await);
    let (name, key) = (name("late"), backend.key("order:1"));
    let begun = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&begun);
    let function = DeferredFn::new(&*name, (argument("nth"),), move |(nth,): (u64,)| {
        noted.lock().unwrap().push((nth as usize, Instant::now()));
        async { Ok::<(), LockError>(()) }
    });
    let working = tokio::spawn(worker(&other, &function).run());
    let held = hold(&locks, &key).await;
    let busy = busy(&locks, &key).await;
    let mut latest = Duration::MAX;
    for _round in 0..ROUNDS {
        begun.lock().unwrap().clear();
        let mut due = Vec::new();
        // Not in the order in which they are due.
        for (nth, millis) in [130, 40, 90, 1, 170].into_iter().enumerate() {
            let delay = Duration::from_millis(millis);
            due.push(Instant::now() + delay);
            let stored = function.clone().delay(delay).manager(&locks);
            stored.later(busy.clone(), (nth as u64,)).await;
        }
        eventually("all were begun", IN_TIME, async || begun.lock().unwrap().len() == due.len())
            .await;
        let begun = begun.lock().unwrap();
        // A millisecond is the unit in which times are kept.
        let early = Duration::from_millis(1);
        assert!(begun.iter().all(|(nth, at)| *at + early >= due[*nth]), "none before its time");
        let late = begun.iter().map(|(nth, at)| at.saturating_duration_since(due[*nth]));
        latest = late.max().expect("some were begun");
        if latest <= LATE {
            break;
        }
    }
    assert!(latest <= LATE, "one was begun {latest:?} after it was due");
    held.release().await.unwrap();
    nothing_is_left(&locks, &name).await;
    other.shutdown(IN_TIME).await.unwrap();
    working.await.unwrap().unwrap();
    forget(backend).await;
}

lockmacro_tests::on_every_backend!(calls_are_begun_when_they_are_due_and_not_at_a_beat);
