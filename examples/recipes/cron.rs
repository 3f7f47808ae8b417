//! A job with an interval, on every machine, of which one does each run.
//!
//! `cargo run -p lockmacro-recipes --example cron`. With `REDIS_URL` the machines may be processes.

use std::time::{SystemTime, UNIX_EPOCH};

use lockmacro_runtime::{LockError, LockManager, distributed_lock};
use tokio::time::{Duration, interval};

const PERIOD: Duration = Duration::from_millis(200);

/// The number of the tick is a part of the key, so every machine means the same run. The key stays
/// for longer than the machines' clocks differ.
#[distributed_lock(key = "report:<tick>", ttl = "10s", min_hold = "10s", on_busy = skip)]
async fn report(tick: u128) -> Option<u128> {
    Some(tick) // the work
}

fn tick() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_millis() / PERIOD.as_millis()
}

/// What each machine runs. Here it ends after some ticks, and returns those that it has done.
async fn machine(name: &str) -> Vec<u128> {
    let mut clock = interval(PERIOD);
    let mut done = Vec::new();
    for _ in 0..5 {
        clock.tick().await;
        if let Some(tick) = report(tick()).await {
            println!("{name} has done {tick}");
            done.push(tick);
        }
    }
    done
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "memory://".to_owned());
    LockManager::connect(&url).await?.install()?;
    let (a, b, c) = tokio::join!(machine("anna"), machine("bert"), machine("cleo"));
    let mut all = [a, b, c].concat();
    let runs = all.len();
    all.sort_unstable();
    all.dedup();
    assert!(runs > 0 && all.len() == runs, "a tick was done twice");
    Ok(())
}

#[test]
fn each_tick_is_done_once() {
    assert_eq!(main(), Ok(()));
}
