//! Simulations of many seeds: what each of them claims is in the oracles.

use lockmacro_simulation_tests::processes::many::{Many, run_seeds};
use lockmacro_simulation_tests::processes::run::run;

#[test]
fn no_simulation_fails() {
    let found = run_seeds(Many::default());
    assert!(found.failures.is_empty(), "{found}");
    println!("{found}");
}

#[test]
fn a_seed_has_one_trace() {
    for seed in 0..50 {
        let [first, again] = [(); 2].map(|()| run(seed, true).trace.expect("it was asked for"));
        let differs = first.lines().zip(again.lines()).position(|(first, again)| first != again);
        assert!(first == again, "seed {seed} differs from line {differs:?} on");
    }
}

#[test]
fn seeds_differ() {
    assert_ne!(run(1, true).trace, run(2, true).trace);
}
