//! A process that acquires and releases a free lock: `URL PAIRS`. Prints the allocations of a pair.

use std::alloc::System;
use std::error::Error;
use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockManager};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Made before the count starts, for what is allocated only once.
const FIRST: usize = 50;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let [_, url, pairs] =
        std::env::args().collect::<Vec<_>>().try_into().map_err(|_| "URL PAIRS")?;
    let pairs: usize = pairs.parse()?;
    let locks = LockManager::connect(&url).await?;
    let pair = || {
        let lock = Lock::new("order:42").ttl(Duration::from_secs(300)).manager(&locks);
        lock.run(async { Ok::<_, LockError>(()) })
    };
    for _ in 0..FIRST {
        pair().await?;
    }
    let region = Region::new(ALLOCATOR);
    for _ in 0..pairs {
        pair().await?;
    }
    println!("{}", region.change().allocations / pairs);
    Ok(())
}
