//! Another server replaces the one that keeps the calls.

use lockmacro_tests::{Group, with_replicas};
use tokio::sync::Semaphore;

use super::*;

#[tokio::test]
async fn calls_that_a_new_primary_knows_are_done_by_the_worker_of_before() {
    let mut servers = with_replicas(1).await;
    let (replica, primary) = (servers.pop().expect("two"), servers.pop().expect("one"));
    let mut group = Group::alone(primary, "", &[]);
    let with = |timeout| LockManager::builder().timeout(timeout);
    let locks = with(TEST_TIMEOUT).connect(&group.url()).await.expect("there");
    let impatient = with(Duration::from_millis(300)).connect(&group.url()).await.expect("there");
    let (calls, gate, name) = (Calls::default(), Arc::new(Semaphore::new(0)), name("failover"));
    let (noted, opens) = (calls.clone(), Arc::clone(&gate));
    let function = DeferredFn::new(&*name, (argument("number"),), move |(number,): (u64,)| {
        noted.add(number);
        let opens = Arc::clone(&opens);
        async move {
            if number == 1 {
                drop(opens.acquire().await);
            }
            Ok::<(), LockError>(())
        }
    });
    let function = function.delay(SHORT_DELAY);
    let working = start(&impatient, &function);
    put(&locks, &function, 1).await;
    eventually("the first one is running", TEST_TIMEOUT, async || calls.all() == [1]).await;
    let late = put(&locks, &function.clone().delay(LONG_TTL), 2).await;
    let mut admin = group.servers[0].admin();
    admin.ask::<()>(&["SET", "last", "1"]);
    assert_eq!(admin.ask::<usize>(&["WAIT", "1", "30000"]), 1);

    group.servers[0].kill();
    gate.add_permits(1);
    // For longer than the worker waits for one answer.
    for _ in 0..2 {
        let error = busy(&impatient, "any").await;
        assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    }
    replica.admin().ask::<()>(&["REPLICAOF", "NO", "ONE"]);
    group.names(&replica);
    put(&locks, &function, 3).await;
    eventually("the next one is run", TEST_TIMEOUT, async || calls.all() == [1, 3]).await;
    for (state, left) in [(JobState::Running, 0), (JobState::Waiting, 1), (JobState::Dead, 0)] {
        let as_many = async || count(&locks, &name, state).await == left;
        eventually(&format!("{left} are {state:?}"), TEST_TIMEOUT, as_many).await;
    }
    remove(&locks, &name, late).await;
    ends(&impatient, working).await;
}
