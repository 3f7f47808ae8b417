//! How late calls are run.

use std::time::Instant;

use futures::future::join_all;

use super::*;

/// How late a call may be on an idle system. On a busy one it may be later by the time in which a
/// request that is sent at the same moment is answered.
const LATE: Duration = Duration::from_millis(50);
/// A machine that has much else to do gets that many chances. One that looks at a fixed beat has
/// none: all calls of a round must be in time.
const ROUNDS: usize = 20;

#[on(memory, redis, postgres, both_runtimes)]
async fn calls_are_begun_when_they_are_due_and_not_at_a_beat(backend: &Backend) {
    let (locks, other) = (manager(backend).await, manager(backend).await);
    let (name, key) = (name("late"), backend.key("order:1"));
    let begun = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&begun);
    let function = DeferredFn::new(&*name, (argument("nth"),), move |(nth,): (u64,)| {
        noted.lock().unwrap().push((nth as usize, Instant::now()));
        async { Ok::<(), LockError>(()) }
    });
    let working = start(&other, &function);
    let held = hold(&locks, &key).await;
    let busy = busy(&locks, &key).await;
    let mut latest = Duration::MAX;
    let answered = async |due: Instant| {
        tokio::time::sleep_until(due.into()).await;
        count(&other, &name, JobState::Waiting).await;
        due.elapsed()
    };
    for _round in 0..ROUNDS {
        begun.lock().unwrap().clear();
        let (mut due, mut due_at_last) = (Vec::new(), Vec::new());
        // Not in the order in which they are due.
        for (nth, millis) in [130, 40, 90, 1, 170].into_iter().enumerate() {
            let delay = Duration::from_millis(millis);
            due.push(Instant::now() + delay);
            let stored = function.clone().delay(delay).manager(&locks);
            stored.defer(busy.clone(), (nth as u64,)).await;
            due_at_last.push(Instant::now() + delay);
        }
        let all = async || begun.lock().unwrap().len() == due.len();
        let answers = join_all(due_at_last.iter().map(|due| answered(*due)));
        let ((), answers) = tokio::join!(eventually("all were begun", TEST_TIMEOUT, all), answers);
        let slow = answers.into_iter().max().expect("there are some");
        let begun = begun.lock().unwrap();
        // A millisecond is the unit in which times are kept.
        let early = Duration::from_millis(1);
        assert!(begun.iter().all(|(nth, at)| *at + early >= due[*nth]), "none before its time");
        let late = begun.iter().map(|(nth, at)| at.saturating_duration_since(due_at_last[*nth]));
        latest = late.max().expect("some were begun").saturating_sub(slow);
        if latest <= LATE {
            break;
        }
    }
    assert!(latest <= LATE, "one was begun {latest:?} after it was due");
    held.release().await.unwrap();
    nothing_is_left(&locks, &name).await;
    ends_on(backend, &other, working).await;
}
