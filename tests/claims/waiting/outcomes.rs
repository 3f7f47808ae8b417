//! Waits that run out: the error, its time, and the rest of the queue.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::queue::Queue;
use lockmacro_tests::{Backend, on, on_a_plain_thread};

use crate::{Held, LONG_TTL, Locked, PUSHED, handed_off, lock, ms, served, waiting};

/// How much later than its end a wait may be over: less than if it were noticed at a tick. A
/// machine in need gets some chances.
const MARGIN: Duration = Duration::from_millis(1_200);
const CHANCES: usize = 8;

/// Waits for a held lock in vain.
async fn timed_out(lock: Lock) -> (Option<String>, Option<Duration>, u32) {
    match lock.acquire().await.map(drop) {
        Err(LockError::TimedOut { holder, rank, .. }) => (holder.owner, holder.free_within, rank),
        other => panic!("not timed out: {other:?}"),
    }
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_wait_that_runs_out_is_not_busy_but_timed_out(backend: &Backend) {
    let ours = backend.manager_from(LockManager::builder().label("desk-1")).await;
    let theirs = backend.manager_from(LockManager::builder().label("desk-2")).await;
    let key = backend.key("order:42");
    let guard = lock(&ours, &key).name("audit").acquire().await.expect("free");
    let error = lock(&theirs, &key).acquire().await.expect_err("held");
    assert!(matches!(error, LockError::Busy { .. }), "{error:?}");
    let error = lock(&theirs, &key).wait(ms(50)).acquire().await.expect_err("held");
    assert!(error.is_busy());
    assert!(error.holder().free_within.is_some_and(|left| left > LONG_TTL / 2 && left <= LONG_TTL));
    assert_eq!(error.retry_after_secs(), Some(5), "nobody has seen how long it is held");
    assert!(error.to_string().contains("desk-1:audit"), "{error}");
    let owner = error.holder().owner.clone();
    let LockError::TimedOut { key: named, rank, message, .. } = error else {
        panic!("not timed out: {error:?}");
    };
    assert_eq!((named.as_str(), owner.as_deref()), (key.as_str(), Some("desk-1:audit")));
    assert_eq!((rank, message), (0, None));
    let error = lock(&theirs, &key).wait(ms(1)).message("later, please").acquire().await;
    assert_eq!(error.expect_err("held").message(), Some("later, please"));
    guard.release().await.expect("still held");
}

/// One that a loaded machine may keep waiting for an answer.
async fn patient(backend: &Backend) -> LockManager {
    backend.manager_from(LockManager::builder().timeout(LONG_TTL)).await
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_wait_that_runs_out_reports_the_rank(backend: &Backend) {
    let (ours, theirs) = (patient(backend).await, patient(backend).await);
    let key = backend.key("order:42");
    let mut queue = Queue::of(backend, &key);
    let guard = lock(&ours, &key).acquire().await.expect("free");
    let mut waiters = Vec::new();
    // Two other processes, and three callers of its own.
    for _ in 0..2 {
        waiters.push(queue.join(waiting(&patient(backend).await, &key).acquire()).await);
    }
    for _ in 0..3 {
        waiters.push(queue.join(waiting(&theirs, &key).acquire()).await);
    }
    assert_eq!(timed_out(lock(&theirs, &key).wait(ms(500))).await.2, 5);
    guard.release().await.expect("still held");
    for waiter in waiters {
        served(LONG_TTL, waiter).await;
    }
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_wait_runs_out_in_time(backend: &Backend) {
    let Held { theirs, key, guard, .. } = Held::on(backend).await;
    // Less than a tick, and a bit more than one.
    let waits = [ms(1), ms(20), ms(300), ms(2_600)].map(async |wait| {
        for chance in 1.. {
            let start = Instant::now();
            timed_out(lock(&theirs, &key).wait(wait)).await;
            let took = start.elapsed();
            assert!(took >= wait, "{wait:?}: after {took:?}");
            if took < wait + MARGIN {
                return;
            }
            assert!(chance < CHANCES, "{wait:?}: after {took:?}");
        }
    });
    futures::future::join_all(waits).await;
    guard.release().await.expect("still held");
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_wait_that_runs_out_leaves_the_queue(backend: &Backend) {
    let Held { ours, theirs, key, mut queue, guard } = Held::on(backend).await;
    timed_out(lock(&theirs, &key).wait(ms(30))).await;
    queue.reaches(0).await;
    let next = queue.join(waiting(&ours, &key).acquire()).await;
    handed_off(guard, next).await;
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_busy_body_does_not_run_when_the_wait_runs_out(backend: &Backend) {
    let Held { theirs, key, guard, .. } = Held::on(backend).await;
    let (start, ran) = (Instant::now(), AtomicU32::new(0));
    let body = || async {
        ran.fetch_add(1, Ordering::Relaxed);
        Locked::Ok(())
    };
    let error = lock(&theirs, &key).wait(ms(30)).run(body()).await.expect_err("held");
    assert!(matches!(error, LockError::TimedOut { .. }), "{error:?}");
    assert!(start.elapsed() >= ms(30), "it has not waited");
    guard.release().await.expect("still held");
    // The same body runs where it gets the lock, and so far it has not.
    lock(&theirs, &key).wait(LONG_TTL).run(body()).await.expect("free");
    assert_eq!(ran.into_inner(), 1);
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn many_waits_that_run_out_leave_nothing(backend: &Backend) {
    // Two hundred requests at once may take a small machine a while.
    let patient = LockManager::builder().timeout(LONG_TTL);
    let (ours, theirs) = (backend.manager().await, backend.manager_from(patient).await);
    let key = backend.key("order:42");
    let guard = lock(&ours, &key).acquire().await.expect("free");
    let waits = (0..200).map(|nth| timed_out(lock(&theirs, &key).wait(ms(20 + nth % 40))));
    futures::future::join_all(waits).await;
    Queue::of(backend, &key).reaches(0).await;
    guard.release().await.expect("still held");
    backend.becomes_free(&key, PUSHED).await;
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_wait_that_runs_out_at_the_hand_off_passes_the_lock_on(backend: &Backend) {
    let (ours, theirs) = (patient(backend).await, patient(backend).await);
    let key = backend.key("order:42");
    let mut wait = ms(200);
    for nth in 0..12 {
        let mut queue = Queue::of(backend, &key);
        let guard = lock(&ours, &key).acquire().await.expect("free");
        let first = loop {
            match queue.try_to_join(lock(&theirs, &key).wait(wait).acquire()).await {
                Some(first) => break first,
                // A loaded machine needs longer to ask.
                None => wait *= 2,
            }
        };
        let queued = Instant::now();
        let first = tokio::spawn(first);
        let next = queue.join(waiting(&theirs, &key).acquire()).await;
        // Around the end of the wait, before and after it.
        let pause = wait - ms(5) + Duration::from_micros(800 * nth);
        let pause = pause.saturating_sub(queued.elapsed());
        tokio::time::sleep(pause).await;
        guard.release().await.expect("still held");
        match first.await.expect("no panic") {
            Ok(guard) => guard.release().await.expect("still held"),
            Err(error) => assert!(matches!(error, LockError::TimedOut { .. }), "{error:?}"),
        }
        served(LONG_TTL, next).await;
    }
}

#[on(memory, redis, cluster, postgres, both_runtimes)]
async fn a_body_is_skipped_after_the_wait(backend: &Backend) {
    let Held { theirs, key, mut queue, guard, .. } = Held::on(backend).await;
    let start = Instant::now();
    let skipped = lock(&theirs, &key).wait(ms(60)).skip_when_busy().run(async { Some(7) }).await;
    assert_eq!(skipped, None);
    assert!(start.elapsed() >= ms(60));
    let (manager, name) = (theirs.clone(), key.clone());
    let skipped = on_a_plain_thread(move || {
        lock(&manager, &name).wait(ms(60)).skip_when_busy().run_blocking(|| Some(7))
    });
    assert_eq!(skipped.await, None);
    queue.reaches(0).await;
    let next = queue.join(waiting(&theirs, &key).skip_when_busy().run(async { Some(7) })).await;
    guard.release().await.expect("still held");
    assert_eq!(next.await, Some(7));
}
