//! Calls of managers with a prefix, and workers in a scope.

use lockmacro_runtime::defer::DeferredFn;
use lockmacro_runtime::distributed_lock;

use super::*;

#[on(memory, redis, postgres, both_runtimes)]
async fn services_with_prefixes_do_not_run_each_others_calls(backend: &Backend) {
    let (calls, others, name) = (Calls::default(), Calls::default(), name("of a service"));
    let shop = backend.manager_from(patient().key_prefix("shop:")).await;
    let bank = backend.manager_from(patient().key_prefix("bank:")).await;
    let (ours, theirs) = (noting(&name, &calls).unique(), noting(&name, &others));
    let working = start(&bank, &theirs);
    let key = backend.key("order:42");
    let held = hold(&shop, &key).await;
    for number in [7, 8] {
        let error = defer(&shop, &ours, &key, (number,)).await;
        let LockError::Deferred { key: stored, .. } = &error else { panic!("{error}") };
        assert_eq!(stored.as_str(), format!("shop:{key}"));
    }
    held.release().await.expect("still held");
    let stored = format!("shop:{name}");
    let page = shop.deferrer().list(stored.as_str().into(), JobState::Waiting, 0, 10).await;
    let page = page.expect("listed");
    assert_eq!((page.total, &*page.jobs[0].key), (1, &*format!("shop:{key}")));
    // The other service's worker is there, and has its own calls alone.
    put(&bank, &theirs, 1).await;
    others.reach(1).await;
    assert_eq!(calls.all(), [0; 0]);
    let running = start(&shop, &ours);
    calls.reach(1).await;
    nothing_is_left(&shop, &stored).await;
    assert_eq!((calls.all(), others.all()), (vec![7], vec![1]));
    for (locks, working) in [(shop, running), (bank, working)] {
        ends(&locks, working).await;
    }
    forget(backend).await;
}

static DONE: Mutex<Vec<(u64, bool)>> = Mutex::new(Vec::new());

fn note(id: u64) {
    let locks = LockManager::current();
    let held = locks.is_ok_and(|locks| locks.guard_of(format!("scoped:{id}")).is_some());
    DONE.lock().unwrap().push((id, held));
}

#[distributed_lock(key = "scoped:<id>", ttl = "10s", on_busy = defer("1ms"))]
async fn scoped(id: u64) -> Result<(), LockError> {
    note(id);
    Ok(())
}

#[distributed_lock(key = "scoped:<id>", ttl = "10s", on_busy = defer("1ms"))]
fn scoped_blocking(id: u64) -> Result<(), LockError> {
    note(id);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_in_a_scope_runs_calls_in_it() {
    let locks = LockManager::isolated_memory();
    let test = locks.scope(async {
        let held = [hold(&locks, "scoped:1").await, hold(&locks, "scoped:2").await];
        assert!(matches!(scoped(1).await, Err(LockError::Deferred { .. })));
        assert!(matches!(scoped_blocking(2), Err(LockError::Deferred { .. })));
        for held in held {
            held.release().await.expect("still held");
        }
        let worker = Worker::new(&locks).register(scoped_deferred());
        let done =
            eventually("both are done", TEST_TIMEOUT, async || DONE.lock().unwrap().len() == 2);
        worker.register(scoped_blocking_deferred()).run_until(done).await
    });
    test.await.expect("it ends");
    let mut done = DONE.lock().unwrap().clone();
    done.sort_unstable();
    assert_eq!(done, [(1, true), (2, true)]);
}

#[tokio::test]
async fn a_disabled_manager_defers_nothing() {
    let (locks, calls, name) = (LockManager::disabled(), Calls::default(), name("disabled"));
    let function: DeferredFn<(u64,)> = noting(&name, &calls);
    let held = hold(&locks, "order:42").await;
    let again = hold(&locks, "order:42").await;
    drop((held, again));
    // Nothing is run in the time in which a call would be.
    let soon = tokio::time::sleep(SHORT_DELAY);
    worker(&locks, &function).run_until(soon).await.expect("it ends");
    assert_eq!(calls.all(), [0; 0]);
}
