//! Many simulations, on all processors.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::processes::run::run;
pub use crate::processes::sim::Failure;
use crate::threads;

/// Failures after which no more seeds are tried.
const FAILURES_MAX: usize = 10;

/// Which seeds to run.
#[derive(Debug, Clone, Copy)]
pub struct Many {
    /// The first seed.
    pub from: u64,
    /// Their number.
    pub seeds: u64,
    /// How many simulations run at once.
    pub threads: usize,
    /// Whether to stop at the first failure.
    pub only_first: bool,
    /// Whether the seeds are those of threads, and not of processes.
    pub is_interleaved: bool,
}

impl Default for Many {
    fn default() -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        Self { from: 0, seeds: 3_000, threads, only_first: false, is_interleaved: false }
    }
}

/// What the simulations showed.
#[derive(Debug)]
pub struct Found {
    /// Their number.
    pub seeds: u64,
    /// How long all took.
    pub took: Duration,
    /// How often tasks were polled in all.
    pub polls: u64,
    /// The seeds that failed, in order.
    pub failures: Vec<(u64, Failure)>,
}

/// Runs the simulations of many seeds.
pub fn run_seeds(many: Many) -> Found {
    let (next, polls, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let (began, failures) = (Instant::now(), Mutex::new(Vec::new()));
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let nth = next.fetch_add(1, Ordering::Relaxed);
            if nth >= many.seeds {
                return;
            }
            let failure = if many.is_interleaved {
                threads::run(many.from + nth)
            } else {
                let outcome = run(many.from + nth, false);
                polls.fetch_add(outcome.polls, Ordering::Relaxed);
                outcome.failure
            };
            if let Some(failure) = failure {
                let mut failures = failures.lock().expect("no panic");
                failures.push((many.from + nth, failure));
                if many.only_first || failures.len() >= FAILURES_MAX {
                    stop.store(true, Ordering::Relaxed);
                }
            }
        }
    };
    thread::scope(|scope| {
        let threads = if many.is_interleaved { 1 } else { many.threads };
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut failures = failures.into_inner().expect("no panic");
    failures.sort_by_key(|(seed, _)| *seed);
    let seeds = next.into_inner().min(many.seeds);
    Found { seeds, took: began.elapsed(), polls: polls.into_inner(), failures }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (seed, failure) in &self.failures {
            writeln!(f, "seed {seed}: {}: {}", failure.oracle, failure.text)?;
        }
        if let Some((seed, _)) = self.failures.first().filter(|_| self.polls > 0) {
            writeln!(f, "read it with `--seed {seed}`; its trace ends like this:")?;
            let trace = run(*seed, true).trace.unwrap_or_default();
            let lines: Vec<_> = trace.lines().collect();
            for line in &lines[lines.len().saturating_sub(60)..] {
                writeln!(f, "{line}")?;
            }
        }
        let took = self.took.as_secs_f64();
        write!(
            f,
            "{} seeds in {took:.1} s, {:.0} each second, {} polls of tasks each; {} failed",
            self.seeds,
            self.seeds as f64 / took,
            self.polls / self.seeds.max(1),
            self.failures.len()
        )
    }
}
