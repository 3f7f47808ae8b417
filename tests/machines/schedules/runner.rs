//! Runs many schedules, or looks for many mutants, on several threads.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::oracles::{Invariant, Judge};
use crate::scripts::{self, File};
use crate::store::{Connected, Store};

/// Schedules wait for leases now and then, so more run at once than there are cores.
const WORKERS: u64 = 4;
/// The number of schedules in which each mutant must be found.
const WITHIN: u64 = 400;

/// Why a schedule ended early.
#[derive(Debug)]
pub enum Stop {
    Violated { invariant: Invariant, why: String, log: Vec<String> },
    Stalled,
}

/// Runs the schedule of a seed before some judges; tells how many steps it had.
pub type Run = fn(&mut Store, &[Judge], u64) -> Result<usize, Stop>;

/// The change in words, the invariants of which it must break one, the file, a passage of the file,
/// and the replacement of the passage.
pub type Mutant = (&'static str, &'static [Invariant], File, &'static str, &'static str);

/// Asserts that no schedule violates an invariant.
pub fn keeps_every_invariant<S: Connected + 'static>(
    start: fn() -> S,
    schedules: u64,
    (run, judges): (Run, &[Judge]),
) {
    let schedules = number("LOCKMACRO_SCHEDULES").unwrap_or(schedules);
    let first = number("LOCKMACRO_SEED").unwrap_or_else(|| fastrand::u64(..1 << 48));
    let (next, steps, stalled) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let worker = || -> Option<String> {
        let mut store = Store::start(start(), scripts::real());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= schedules {
                return None;
            }
            let seed = first + number;
            match run(&mut store, judges, seed) {
                Ok(count) => steps.fetch_add(count as u64, Ordering::Relaxed),
                Err(Stop::Stalled) => stalled.fetch_add(1, Ordering::Relaxed),
                Err(Stop::Violated { invariant, why, log }) => {
                    next.store(schedules, Ordering::Relaxed);
                    let log = log.join("\n  ");
                    return Some(format!(
                        "{invariant:?}: {why}\n  {log}\n\
                         again with LOCKMACRO_SEED={seed} LOCKMACRO_SCHEDULES=1"
                    ));
                }
            };
        }
    };
    let violations = of_workers(WORKERS.min(schedules), worker);
    let violations: Vec<String> = violations.into_iter().flatten().collect();
    assert!(violations.is_empty(), "{}", violations.join("\n\n"));
    let (steps, stalled) = (steps.into_inner(), stalled.into_inner());
    println!("{schedules} schedules from seed {first}, {steps} steps, {stalled} stalled");
    // On a machine with other work many do. What counts is that enough of them last.
    assert!(stalled <= (schedules / 2).max(1), "{stalled} of {schedules} schedules stalled");
}

/// Asserts that each mutant is found by the judges of what it breaks.
pub fn every_mutant_is_found<S: Connected + 'static>(
    start: fn() -> S,
    mutants: &[Mutant],
    (run, judges): (Run, &[Judge]),
) {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut store = Store::start(start(), scripts::real());
        let mut survivors = Vec::new();
        while let Some((name, broken, file, old, new)) =
            mutants.get(next.fetch_add(1, Ordering::Relaxed))
        {
            store.load(scripts::changed(*file, old, new));
            let judges: Vec<Judge> =
                judges.iter().copied().filter(|(of, _)| broken.contains(of)).collect();
            let mut finds =
                |seed: &u64| matches!(run(&mut store, &judges, *seed), Err(Stop::Violated { .. }));
            match (0..WITHIN).find(|seed| finds(seed)) {
                Some(seed) => println!("{name}: by {broken:?} in schedule {}", seed + 1),
                None => survivors.push(format!("{name}: not by {broken:?}")),
            }
        }
        survivors
    };
    let survivors = of_workers(WORKERS, worker).concat();
    assert!(survivors.is_empty(), "{}", survivors.join("\n"));
}

fn of_workers<T: Send>(workers: u64, worker: impl Fn() -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(&worker)).collect();
        threads.into_iter().map(|t| t.join().expect("schedules that run")).collect()
    })
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text}")))
}
