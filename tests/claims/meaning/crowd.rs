//! Many tasks under one key, none of which is lost.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockmacro_runtime::LockManager;
use lockmacro_tests::{Backend, on};

use crate::{Failure, TEST_TIMEOUT, lock};

// Not on a Redlock: without a queue, two hundred callers at once are more than its nodes answer in
// time.

const TASKS: u64 = 200;

/// Read, pause, write: safe under the lock alone.
struct Counter(std::sync::Mutex<Cell<u64>>);

impl Counter {
    async fn increment(&self) {
        let read = self.0.lock().expect("the counter").get();
        tokio::task::yield_now().await;
        self.0.lock().expect("the counter").set(read + 1);
    }
}

#[on(memory, redis, postgres, both_runtimes)]
async fn two_hundred_tasks_that_ask_again_lose_nothing(backend: &Backend) {
    let counter = Arc::new(Counter(std::sync::Mutex::default()));
    let managers = [backend.manager().await, backend.manager().await];
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let manager = managers[(task % 2) as usize].clone();
        let (key, counter) = (backend.key("counter"), Arc::clone(&counter));
        tasks.spawn(async move { increment_in_the_end(&manager, &key, &counter, task).await });
    }
    tasks.join_all().await;
    let end = counter.0.lock().expect("the counter").get();
    assert_eq!(end, TASKS);
    assert!(backend.is_free(&backend.key("counter")).await);
}

/// Asks again while the lock is busy, after 1 to 20 ms that differ by task and by attempt.
async fn increment_in_the_end(manager: &LockManager, key: &str, counter: &Counter, task: u64) {
    let start = Instant::now();
    for attempt in 1.. {
        let body = async {
            counter.increment().await;
            Ok::<(), Failure>(())
        };
        match lock(manager, key).run(body).await {
            Ok(()) => return,
            Err(Failure::Lock(error)) if error.is_busy() => {}
            Err(error) => panic!("task {task}: {error}"),
        }
        assert!(start.elapsed() < 6 * TEST_TIMEOUT, "task {task} starves");
        let pause = 1_000 + (task * 7_919 + attempt * 104_729) % 19_000;
        tokio::time::sleep(Duration::from_micros(pause)).await;
    }
}
