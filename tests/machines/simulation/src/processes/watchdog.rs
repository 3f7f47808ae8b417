//! Ends a run of simulations when one of them does not end, and names its seed. No oracle sees a
//! loop inside one poll, which never returns to the simulation.

use std::process::exit;
use std::sync::{Mutex, Once};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// The longest time of a simulation by the real clock. Most take some milliseconds.
const LONGEST: Duration = Duration::from_secs(180);

static RUNNING: Mutex<Vec<(u64, Instant)>> = Mutex::new(Vec::new());

/// A simulation that runs, until this is dropped.
pub(crate) struct Watched(u64);

/// Watches the simulation of a seed.
pub(crate) fn watch(seed: u64) -> Watched {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| drop(spawn(watches)));
    RUNNING.lock().expect("no panic").push((seed, Instant::now()));
    Watched(seed)
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut running = RUNNING.lock().expect("no panic");
        if let Some(at) = running.iter().position(|(seed, _)| *seed == self.0) {
            running.swap_remove(at);
        }
    }
}

fn watches() {
    loop {
        sleep(Duration::from_secs(1));
        let running = RUNNING.lock().expect("no panic").clone();
        if let Some(seed) = overdue(&running, Instant::now()) {
            println!("seed {seed}: livelock: it runs for over {LONGEST:?}, maybe inside one poll");
            exit(1);
        }
    }
}

fn overdue(running: &[(u64, Instant)], now: Instant) -> Option<u64> {
    let mut overdue = running.iter().filter(|(_, began)| now.duration_since(*began) > LONGEST);
    overdue.next().map(|(seed, _)| *seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulation_that_does_not_end_is_named() {
        // Seeds that nothing else runs.
        let (first, other) = (watch(u64::MAX), watch(u64::MAX - 1));
        let later = Instant::now() + LONGEST / 2;
        let running = RUNNING.lock().expect("no panic").clone();
        assert_eq!(overdue(&running, later), None);
        drop(first);
        let mut running = RUNNING.lock().expect("no panic").clone();
        running.retain(|(seed, _)| *seed >= u64::MAX - 1);
        assert_eq!(overdue(&running, later + LONGEST), Some(u64::MAX - 1));
        drop(other);
        assert!(RUNNING.lock().expect("no panic").iter().all(|(seed, _)| *seed < u64::MAX - 1));
    }
}
