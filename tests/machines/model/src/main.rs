//! Runs schedules by hand.

use std::collections::BTreeMap;
use std::process::ExitCode;

use lockmacro_model_tests::key_queue::explore::{Budget, Kind, explore};
use lockmacro_model_tests::key_queue::world::World;
use lockmacro_model_tests::life;
use lockmacro_model_tests::mutants::try_all;

/// Schedules that are tried before a mutant counts as not found.
const SCHEDULES: u64 = 10_000;

/// Number of things that need not happen in a life, and of all events.
const RARE: (u8, usize) = (2, 8);

const USAGE: &str = "key-queue SEEDS [FROM]
key-queue --seed SEED
key-queue --first
key-queue --first-life
key-queue --mutants [NAME | life]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |nth: usize| args.get(nth).and_then(|text| text.parse::<u64>().ok());
    let passes = match (args.first().map(String::as_str), number(0), number(1)) {
        (Some("--seed"), _, Some(seed)) => trace(seed),
        (Some("--first"), ..) => first(),
        (Some("--first-life"), ..) => first_of_life(),
        (Some("--mutants"), ..) => match try_all(args.get(1).map(String::as_str)) {
            Ok(passes) => passes,
            Err(error) => {
                eprintln!("the mutants cannot be tried: {error}");
                false
            }
        },
        (_, Some(seeds), from) => many(from.unwrap_or(0), seeds),
        _ => {
            eprintln!("{USAGE}");
            false
        }
    };
    ExitCode::from(u8::from(!passes))
}

/// Prints the first broken promise of many schedules and of every interleaving of two callers.
fn first() -> bool {
    for world in [World::with_forgotten_waiters(), World::with_late_waiters()] {
        if let Some(what) = world.run().violations.first() {
            println!("{what}");
            return false;
        }
    }
    for seed in 0..SCHEDULES {
        if let Some(what) = World::random(seed).run().violations.first() {
            println!("{what}, seed {seed}");
            return false;
        }
    }
    let budgets = [
        Budget { polls: 1, closes: 1, ..Budget::default() },
        Budget { unknown: 1, spent: 1, ..Budget::default() },
    ];
    let pairs = Kind::pairs();
    let all = budgets.iter().flat_map(|budget| pairs.iter().map(move |pair| (pair, *budget)));
    let mut failures = all.filter_map(|(pair, budget)| explore(pair, budget, 300_000).failure);
    match failures.next() {
        Some((what, steps)) => {
            println!("interleaving: {what}, {steps:?}");
            false
        }
        None => true,
    }
}

/// Prints the first broken promise in the life of a lock.
fn first_of_life() -> bool {
    let explored = life::explore::explore(RARE.0, RARE.1);
    if let Some((what, steps)) = explored.failure {
        println!("{what}, {steps:#?}");
        return false;
    }
    println!("{} states", explored.states);
    true
}

/// Prints all that happens in a schedule.
fn trace(seed: u64) -> bool {
    let report = World::random(seed).traced().run();
    report.log.iter().chain(&report.violations).for_each(|line| println!("{line}"));
    report.violations.is_empty()
}

/// Prints how often each oracle fails, and its first seed.
fn many(from: u64, seeds: u64) -> bool {
    let mut failed: BTreeMap<String, (u64, u64, String)> = BTreeMap::new();
    for seed in from..from + seeds {
        let violations = World::random(seed).run().violations;
        if let Some((oracle, what)) = violations.first().and_then(|what| what.split_once(": ")) {
            let (count, ..) = failed.entry(oracle.to_owned()).or_insert((0, seed, what.to_owned()));
            *count += 1;
        }
    }
    for (oracle, (count, seed, what)) in &failed {
        println!("{oracle}: {count} of {seeds}, first seed {seed}: {what}");
    }
    failed.is_empty()
}
