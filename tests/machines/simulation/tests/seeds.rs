//! Simulations of many seeds: what each of them claims is in the oracles.
//!
//! `SIMULATION_SEEDS` is the number of seeds of each kind, 3,000 and 2,000 by default.

use std::collections::BTreeSet;

use lockmacro_simulation_tests::processes::many::{Many, run_seeds};
use lockmacro_simulation_tests::processes::run::run;

fn seeds(usual: u64) -> u64 {
    let asked = std::env::var("SIMULATION_SEEDS").ok();
    asked.and_then(|seeds| seeds.parse().ok()).unwrap_or(usual)
}

#[test]
fn no_simulation_fails() {
    let found = run_seeds(Many { seeds: seeds(3_000), ..Many::default() });
    assert!(found.failures.is_empty(), "{found}");
    println!("{found}");
}

#[test]
fn no_order_of_threads_fails() {
    let found = run_seeds(Many { seeds: seeds(2_000), is_interleaved: true, ..Many::default() });
    assert!(found.failures.is_empty(), "{found}");
    println!("{found}");
}

/// Seeds that have found something in the engine, and what it was.
const FOUND: [(u64, &str); 16] = [
    (735, "the keys that were free were released, and asked for again with the same token"),
    (1_414, "the keys that were free were released, and asked for again with the same token"),
    (103_271, "a release after the lease left a free lock to the next tick of a waiter"),
    (1_004_026, "a caller behind others of its process was told of a server without an answer"),
    (1_024_625, "votes for a second key were split for longer than the lease of the first key"),
    (1_056_971, "a lost key made its process release the other keys of a body that still ran"),
    (1_063_506, "a caller of several keys made one that does not wait wait for its other keys"),
    (
        1_080_068,
        "a lost majority made its process release the other nodes of a body that still ran",
    ),
    (1_104_451, "a shutdown put off the second release of a dropped call"),
    (1_144_998, "a caller of several keys made one that does not wait wait for its other keys"),
    (1_163_366, "the text of a script was sent for a caller that had been dropped before"),
    (1_198_813, "a lost key made its process release the other keys of a body that still ran"),
    (1_215_012, "votes for a second key were split for longer than the lease of the first key"),
    (1_378_354, "a lost key made its process release the other keys of a body that still ran"),
    (5_052_687, "a lock was asked for with a token whose release was in flight"),
    (7_004_590, "a caller was told of a server without an answer, after another one was refused"),
];

#[test]
fn what_was_found_stays_mended() {
    for (seed, found) in FOUND {
        let ended = run(seed, false);
        assert!(ended.failure.is_none(), "seed {seed}: {found}: {:?}", ended.failure);
    }
}

/// Seeds differ in what is planned, and in what happens then.
#[test]
fn a_seed_has_one_trace_of_its_own() {
    let (mut plans, mut events) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..50 {
        let [first, again] = [(); 2].map(|()| run(seed, true).trace.expect("it was asked for"));
        let differs = first.lines().zip(again.lines()).position(|(first, again)| first != again);
        assert!(first == again, "seed {seed} differs from line {differs:?} on");
        let (plan, happened) = first.split_once("\n}\n").expect("a scenario, and events");
        assert!(happened.lines().count() > 10, "seed {seed}: {happened}");
        plans.insert(plan.to_owned());
        events.insert(happened.to_owned());
    }
    assert_eq!((plans.len(), events.len()), (50, 50));
}
