//! What others have written into the keys of the queue.

use lockmacro_tests::Server;

use super::*;

#[tokio::test]
async fn what_is_no_call_is_removed_and_the_others_are_run() {
    let server = Server::start();
    let (locks, calls) = (connect(&server).await, Calls::default());
    let function = noting("f", &calls);
    put(&locks, &function, 1).await;
    let mut admin = server.admin();
    // Without arguments, without a number of attempts, with arguments that are none.
    admin.ask::<()>(&["ZADD", "lm1:wd:{lm1:jobs:f}", "1", "stray"]);
    admin.ask::<()>(&["HSET", "lm1:jobs:f", "odd", "[2]", "odd#n", "many", "odd#k", "k"]);
    admin.ask::<()>(&["ZADD", "lm1:wd:{lm1:jobs:f}", "2", "odd"]);
    let most = "9223372036854775807";
    admin.ask::<()>(&[
        "HSET",
        "lm1:jobs:f",
        "big",
        "[3]",
        "big#n",
        most,
        "big#t",
        "-1",
        "big#k",
        "k",
    ]);
    admin.ask::<()>(&["ZADD", "lm1:wd:{lm1:jobs:f}", "2", "big"]);
    admin.ask::<()>(&["HSET", "lm1:jobs:f", "bad", "\u{1}{", "bad#k", "k"]);
    admin.ask::<()>(&["ZADD", "lm1:wd:{lm1:jobs:f}", "3", "bad"]);
    admin.ask::<()>(&["ZADD", "lm1:wi:{lm1:jobs:f}", "99999999999999", "no number"]);
    let working = tokio::spawn(worker(&locks, &function).run());
    calls.become_so_many(3).await;
    eventually("given up", IN_TIME, async || count(&locks, "f", JobState::Dead).await == 1).await;
    eventually("no more waits", IN_TIME, async || count(&locks, "f", JobState::Waiting).await == 0)
        .await;
    assert!(!admin.ask::<bool>(&["ZSCORE", "lm1:wd:{lm1:jobs:f}", "stray"]));
    locks.shutdown(IN_TIME).await.unwrap();
    working.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_key_beside_the_queue_that_is_of_another_type_stops_no_worker() {
    let server = Server::start();
    let (locks, calls) = (connect(&server).await, Calls::default());
    let function = noting("f", &calls);
    let mut admin = server.admin();
    let keys = ["lm1:wo:{lm1:jobs:f}", "lm1:wu:{lm1:jobs:f}", "lm1:wi:{lm1:jobs:f}"];
    let working = tokio::spawn(worker(&locks, &function).run());
    for (nth, key) in keys.into_iter().enumerate() {
        admin.ask::<()>(&["DEL", key]);
        admin.ask::<()>(&["SET", key, "text"]);
        let error = busy_deferred(&locks, &function.clone().unique()).await;
        // It is stored, or the caller is told what is in the way.
        let told = matches!(error, LockError::KeyNotALock { .. } | LockError::Deferred { .. });
        assert!(told, "{key}: {error:?}");
        admin.ask::<()>(&["DEL", key]);
        put(&locks, &function, 100 + nth as u64).await;
        eventually("workers go on", IN_TIME, async || calls.all().contains(&(100 + nth as u64)))
            .await;
    }
    locks.shutdown(IN_TIME).await.unwrap();
    working.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_queue_that_is_of_another_type_holds_up_no_other() {
    let server = Server::start();
    let (locks, calls) = (connect(&server).await, Calls::default());
    let (function, broken) = (noting("f", &calls), noting("broken", &calls));
    server.admin().ask::<()>(&["SET", "lm1:wd:{lm1:jobs:broken}", "text"]);
    put(&locks, &function, 1).await;
    let both = worker(&locks, &function).register(broken.clone());
    let working = tokio::spawn(both.run());
    calls.become_so_many(1).await;
    let error = busy_deferred(&locks, &broken).await;
    assert!(matches!(error, LockError::KeyNotALock { .. }), "{error:?}");
    locks.shutdown(IN_TIME).await.unwrap();
    working.await.unwrap().unwrap();
}

async fn busy_deferred(locks: &LockManager, function: &DeferredFn<(u64,)>) -> LockError {
    let held = hold(locks, "k").await;
    let error = busy(locks, "k").await;
    let deferred = function.clone().manager(locks).later(error, (1,)).await;
    held.release().await.unwrap();
    deferred
}
