//! Workers that are stopped.

use std::sync::atomic::AtomicBool;

use lockmacro_runtime::defer::{Settled, When};
use tokio::sync::oneshot;

use super::*;

#[on(memory, redis, postgres, both_runtimes)]
async fn a_stopped_worker_returns_calls_that_are_not_done(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("stopped"));
    let noted = calls.clone();
    let stuck = DeferredFn::new(&*name, (argument("number"),), move |(number,): (u64,)| {
        noted.add(number);
        pending::<()>()
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let stopping = worker(&locks, &stuck).grace(SHORT_DELAY).run_until(async {
        let _ = stopped.await;
    });
    let working = tokio::spawn(stopping);
    put(&locks, &stuck.delay(SHORT_DELAY), 5).await;
    calls.reach(1).await;
    stop.send(()).unwrap();
    working.await.unwrap().unwrap();
    let call = first(&locks, &name, JobState::Waiting).await.expect("it waits");
    assert_eq!(call.attempts, 0, "as if it had not been taken");

    // Another one takes it up at once.
    let working = start(&locks, &noting(&name, &calls));
    calls.reach(2).await;
    nothing_is_left(&locks, &name).await;
    ends_on(backend, &locks, working).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_worker_of_two_functions_of_one_name_does_not_begin(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("twins"));
    let id = put(&locks, &noting(&name, &calls), 1).await;
    let twins = worker(&locks, &noting(&name, &calls)).register(noting(&name, &calls));
    let refused = twins.run().await.expect_err("they would do each other's work");
    assert!(matches!(refused, LockError::InvalidSetting { setting: "name", .. }), "{refused:?}");
    assert!(refused.to_string().contains(&name), "{refused}");
    assert!(calls.all().is_empty(), "nothing was taken");
    remove(&locks, &name, id).await;
    forget(backend).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_worker_that_is_stopped_waits_for_what_is_nearly_done(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("nearly"));
    let noted = calls.clone();
    let (begun, has_begun) = tokio::sync::watch::channel(false);
    let slow = DeferredFn::new(&*name, (argument("number"),), move |(number,): (u64,)| {
        let (noted, begun) = (noted.clone(), begun.clone());
        async move {
            begun.send_replace(true);
            tokio::time::sleep(SHORT_DELAY * 5).await;
            noted.add(number);
        }
    });
    put(&locks, &slow.clone().delay(SHORT_DELAY), 5).await;
    let mut has_begun = has_begun;
    worker(&locks, &slow)
        .run_until(async {
            has_begun.wait_for(|begun| *begun).await.unwrap();
        })
        .await
        .unwrap();
    assert_eq!(calls.all(), [5]);
    nothing_is_left(&locks, &name).await;
    forget(backend).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_bounded_number_of_calls_runs_at_once(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("bound"));
    let running = Arc::new(Mutex::new((0_u32, 0_u32, 0_u32)));
    let counted = Arc::clone(&running);
    let function = DeferredFn::new(&*name, (argument("number"),), move |(_,): (u64,)| {
        let counted = Arc::clone(&counted);
        async move {
            {
                let mut counted = counted.lock().unwrap();
                counted.0 += 1;
                counted.1 = counted.1.max(counted.0);
            }
            // The first ones until there are that many.
            while counted.lock().unwrap().1 < 3 {
                tokio::time::sleep(SHORT_DELAY / 10).await;
            }
            tokio::time::sleep(SHORT_DELAY).await;
            let mut counted = counted.lock().unwrap();
            counted.0 -= 1;
            counted.2 += 1;
        }
    });
    let function = function.delay(SHORT_DELAY);
    for number in 0..12 {
        put(&locks, &function, number).await;
    }
    let working = tokio::spawn(worker(&locks, &function).concurrency(3).run());
    eventually("all are done", TEST_TIMEOUT, async || running.lock().unwrap().2 == 12).await;
    assert_eq!(running.lock().unwrap().1, 3, "three at once and no more");
    nothing_is_left(&locks, &name).await;
    ends_on(backend, &locks, working).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_call_that_takes_longer_than_its_lease_stays_with_its_worker(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("long"));
    let noted = calls.clone();
    let long = DeferredFn::new(&*name, (argument("number"),), move |(number,): (u64,)| {
        noted.add(number);
        async { tokio::time::sleep(Duration::from_millis(2_600)).await }
    });
    let begin = || worker(&locks, &long).lease(Duration::from_secs(2)).run();
    let working = [tokio::spawn(begin()), tokio::spawn(begin())];
    put(&locks, &long.clone().delay(SHORT_DELAY), 5).await;
    calls.reach(1).await;
    nothing_is_left(&locks, &name).await;
    assert_eq!(calls.all(), [5], "it was run once");
    locks.shutdown(TEST_TIMEOUT).await.unwrap();
    for working in working {
        working.await.unwrap().unwrap();
    }
    forget(backend).await;
}

/// Blocks until its lease was made longer twice.
async fn a_call_that_blocks_its_thread_is_kept(backend: &Backend) {
    let (locks, calls, name) = (manager(backend).await, Calls::default(), name("blocks"));
    let (noted, kept) = (calls.clone(), Arc::new(AtomicBool::new(false)));
    let has_been = Arc::clone(&kept);
    let blocks = DeferredFn::new(&*name, (argument("number"),), move |(number,): (u64,)| {
        let (noted, has_been) = (noted.clone(), Arc::clone(&has_been));
        async move {
            noted.add(number);
            let start = Instant::now();
            while !has_been.load(Ordering::Relaxed) && start.elapsed() < TEST_TIMEOUT {
                std::thread::sleep(SHORT_DELAY);
            }
        }
    });
    put(&locks, &blocks.clone().delay(SHORT_DELAY), 5).await;
    let lease = Duration::from_secs(3);
    let working = tokio::spawn(worker(&locks, &blocks).lease(lease).run());
    let seen = Mutex::new((Duration::MAX, 0));
    let twice = async || {
        let running = first(&locks, &name, JobState::Running).await;
        if let Some(When::In(now)) = running.map(|job| job.when) {
            let (left, times) = *seen.lock().unwrap();
            let is_more = u32::from(now > left);
            *seen.lock().unwrap() = (now, times + is_more);
        }
        seen.lock().unwrap().1 >= 2
    };
    eventually("kept twice", TEST_TIMEOUT / 2, twice).await;
    kept.store(true, Ordering::Relaxed);
    nothing_is_left(&locks, &name).await;
    assert_eq!(calls.all(), [5], "it was run once");
    ends_on(backend, &locks, working).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_call_that_blocks_its_thread_is_kept_in_memory() {
    a_call_that_blocks_its_thread_is_kept(&Backend::memory()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_call_that_blocks_its_thread_is_kept_on_redis() {
    a_call_that_blocks_its_thread_is_kept(&Backend::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_call_that_blocks_its_thread_is_kept_in_postgres() {
    a_call_that_blocks_its_thread_is_kept(&Backend::postgres().await).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_call_whose_lock_is_gone_with_the_manager_goes_back(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("shut-down"));
    let (begun, mut has_begun) = tokio::sync::watch::channel(false);
    let manager = locks.clone();
    let function = DeferredFn::new(&*name, (argument("number"),), move |(_,): (u64,)| {
        let (manager, begun) = (manager.clone(), begun.clone());
        async move {
            begun.send_replace(true);
            tokio::time::sleep(SHORT_DELAY * 5).await;
            Lock::new("never-had").manager(&manager).acquire().await.map(drop)
        }
    });
    let function = function.delay(SHORT_DELAY).attempts(1);
    put(&locks, &function, 5).await;
    let working = start(&locks, &function);
    has_begun.wait_for(|begun| *begun).await.unwrap();
    ends(&locks, working).await;
    let other = super::manager(backend).await;
    let call = first(&other, &name, JobState::Waiting).await.expect("it waits");
    assert_eq!(call.attempts, 0, "as if it had not been taken");
    remove(&other, &name, call.id).await;
    forget(backend).await;
}

#[on(memory, redis, postgres, both_runtimes)]
async fn a_call_that_went_to_another_worker_is_settled_by_that_one(backend: &Backend) {
    let (locks, name) = (manager(backend).await, name("handed-on"));
    let function = noting(&name, &Calls::default());
    put(&locks, &function, 5).await;
    let job_queue = locks.job_queue();
    // The first worker is not heard of any more, or gives it back and says so twice.
    for ends in [None, Some(Settled::Returned)] {
        let first = take(&locks, &name, SHORT_DELAY).await;
        if let Some(back) = ends.clone() {
            assert!(job_queue.settle(first.clone(), back).await.unwrap());
        }
        let second = take(&locks, &name, LONG_TTL).await;
        assert_eq!(first.id, second.id);
        let late = ends.unwrap_or(Settled::Done);
        assert!(
            !job_queue.settle(first.clone(), late).await.unwrap(),
            "it is not its own any more"
        );
        assert!(!job_queue.keep(first, LONG_TTL).await.unwrap());
        assert!(job_queue.keep(second.clone(), LONG_TTL).await.unwrap());
        assert!(job_queue.settle(second, Settled::Returned).await.unwrap());
    }
    let last = take(&locks, &name, LONG_TTL).await;
    assert!(job_queue.settle(last, Settled::Done).await.unwrap());
    nothing_is_left(&locks, &name).await;
    forget(backend).await;
}

/// Another worker may run it by now.
#[tokio::test]
async fn a_call_that_is_not_its_workers_any_more_is_dropped() {
    let server = Server::start();
    let (locks, name, body) = (connect(&server).await, name("lost"), Arc::new(()));
    let theirs = Arc::clone(&body);
    let stuck = DeferredFn::new(&*name, (argument("number"),), move |(_,): (u64,)| {
        let running = Arc::clone(&theirs);
        async move {
            pending::<()>().await;
            drop(running);
        }
    });
    let lease = SHORT_DELAY * 30;
    let working = tokio::spawn(worker(&locks, &stuck).lease(lease).run());
    put(&locks, &stuck.delay(SHORT_DELAY), 5).await;
    eventually("it runs", TEST_TIMEOUT, async || Arc::strong_count(&body) == 3).await;
    // Longer than its lease.
    tokio::time::sleep(2 * lease).await;
    assert_eq!(Arc::strong_count(&body), 3, "its worker keeps it");
    server.admin().ask::<()>(&["FLUSHALL"]);
    eventually("it is dropped", TEST_TIMEOUT, async || Arc::strong_count(&body) == 2).await;
    ends(&locks, working).await;
}
