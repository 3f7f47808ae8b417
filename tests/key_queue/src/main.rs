//! Runs schedules by hand.

use std::collections::BTreeMap;
use std::process::ExitCode;

use lockmacro_key_queue_tests::world::World;

const USAGE: &str = "key-queue SEEDS [FROM]
key-queue --seed SEED";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |nth: usize| args.get(nth).and_then(|text| text.parse::<u64>().ok());
    match (args.first().map(String::as_str), number(0), number(1)) {
        (Some("--seed"), _, Some(seed)) => trace(seed),
        (_, Some(seeds), from) => many(from.unwrap_or(0), seeds),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Prints all that happens in a schedule.
fn trace(seed: u64) -> ExitCode {
    let report = World::random(seed).traced().run();
    report.log.iter().chain(&report.violations).for_each(|line| println!("{line}"));
    ExitCode::from(u8::from(!report.violations.is_empty()))
}

/// Prints how often each oracle fails, and its first seed.
fn many(from: u64, seeds: u64) -> ExitCode {
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
    ExitCode::from(u8::from(!failed.is_empty()))
}
