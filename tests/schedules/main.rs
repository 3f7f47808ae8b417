//! The scripts of the fair queue under random schedules, each with its own seed: on real servers,
//! on simulated ones, and on both side by side, where every answer must be the same.
//!
//! `LOCKMACRO_SCHEDULES` says how many (2,000, 500 and 500), `LOCKMACRO_SEED` with which seed to
//! begin; a failure names the seed of its schedule, which then runs alone with
//! `LOCKMACRO_SCHEDULES=1`.

#[path = "../simulation/tests/server/both.rs"]
mod both;
mod model;
mod mutants;
mod oracles;
mod perform;
mod real;
mod replay;
mod schedule;
mod scripts;
mod sharing;
mod sharing_mutants;
mod sharing_oracles;
mod simulated;
mod store;

use std::sync::atomic::{AtomicU64, Ordering};

use oracles::INVARIANTS;
use real::Real;
use schedule::{Stop, run};
use scripts::Scripts;
use simulated::Simulated;
use store::{Connected, Store};

/// Schedules wait for leases now and then, so more run at once than there are cores.
const WORKERS: u64 = 4;

#[test]
fn every_schedule_keeps_every_invariant() {
    keeps_every_invariant(Real::start, 2_000);
}

#[test]
fn every_schedule_keeps_every_invariant_on_a_simulated_server() {
    keeps_every_invariant(Simulated::alone, 500);
}

#[test]
fn a_simulated_server_answers_every_schedule_as_a_real_one_does() {
    keeps_every_invariant(Simulated::beside_a_real_one, 500);
}

fn keeps_every_invariant<S: Connected + 'static>(start: fn() -> S, schedules: u64) {
    let schedules = number("LOCKMACRO_SCHEDULES").unwrap_or(schedules);
    let first = number("LOCKMACRO_SEED").unwrap_or_else(|| fastrand::u64(..1 << 48));
    let (next, steps, stalled) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let worker = || -> Option<String> {
        let mut store = Store::start(start(), Scripts::real());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= schedules {
                return None;
            }
            let seed = first + number;
            match run(&mut store, &INVARIANTS, seed) {
                Ok(count) => steps.fetch_add(count as u64, Ordering::Relaxed),
                Err(Stop::Stalled) => stalled.fetch_add(1, Ordering::Relaxed),
                Err(Stop::Violated { invariant, why, log }) => {
                    next.store(schedules, Ordering::Relaxed);
                    let log = log.join("\n  ");
                    return Some(format!(
                        "{invariant}: {why}\n  {log}\n\
                         again with LOCKMACRO_SEED={seed} LOCKMACRO_SCHEDULES=1"
                    ));
                }
            };
        }
    };
    let workers = WORKERS.min(schedules);
    let violations: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let results = threads.into_iter().map(|t| t.join().expect("a schedule that runs"));
        results.flatten().collect()
    });
    assert!(violations.is_empty(), "{}", violations.join("\n\n"));
    let (steps, stalled) = (steps.into_inner(), stalled.into_inner());
    println!("{schedules} schedules from seed {first}, {steps} steps, {stalled} stalled");
    assert!(stalled <= (schedules / 10).max(1), "{stalled} of {schedules} schedules stalled");
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text}")))
}
