//! The memory of one waiter in its own process, counted by an allocator that the process has for
//! itself.

use std::alloc::System;
use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::Server;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::time::sleep;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const KEY: &str = "order:42";
/// Made before the count starts, for what is allocated only once.
const FIRST: usize = 100;
const COUNTED: usize = 1_000;
/// Everybody asks again within it; between two questions nothing of one is left.
const WATCHED: Duration = Duration::from_secs(3);
/// Bytes that an allocator adds to each allocation at most: glibc's has a header of 8 bytes, and
/// rounds up to 16.
const ADDED: usize = 8 + 15;
const BOUND: usize = 700;

#[tokio::test]
async fn a_waiter_takes_seven_hundred_bytes_in_all() {
    let server = Server::start();
    // As in production: the label is in each token.
    let label = "web-7f9c4d.example:4711";
    let locks = LockManager::builder().label(label).connect(&server.url()).await;
    let locks = locks.expect("the server is there");
    let lock = || Lock::new(KEY).manager(&locks).ttl(Duration::from_secs(300)).wait_forever();
    let holder = lock().acquire().await.expect("free");
    let mut tasks = Vec::with_capacity(FIRST + COUNTED);
    let mut crowd = |more| {
        // A future of the caller's, spawned as a service has it.
        let run = || tokio::spawn(lock().run(async { Ok::<_, LockError>(()) }));
        tasks.extend((0..more).map(|_| run()));
    };
    crowd(FIRST);
    // Until the first ones have allocated all that they keep.
    sleep(Duration::from_millis(300)).await;
    let region = Region::new(ALLOCATOR);
    crowd(COUNTED);
    sleep(Duration::from_millis(300)).await;
    let (start, mut each) = (Instant::now(), (usize::MAX, 0, 0));
    while start.elapsed() < WATCHED {
        sleep(Duration::from_millis(5)).await;
        let now = region.change();
        let bytes = now.bytes_allocated.saturating_sub(now.bytes_deallocated);
        let count = now.allocations.saturating_sub(now.deallocations);
        each = each.min((bytes + count * ADDED, bytes, count));
    }
    let (all, bytes, count) = each;
    let taken =
        format!("{} bytes in {:.2} allocations", bytes / COUNTED, count as f64 / COUNTED as f64);
    println!("a waiter takes {taken}");
    assert!(all / COUNTED <= BOUND, "{taken}, which may be {} bytes", all / COUNTED);
    assert!(count / COUNTED <= 6, "{taken}");
    for task in &tasks {
        task.abort();
    }
    holder.release().await.expect("still held");
}
