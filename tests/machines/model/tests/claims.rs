//! The promises of the key queue, in its model.

use lockmacro_model_tests::key_queue::explore::{Budget, Kind, explore};
use lockmacro_model_tests::key_queue::order::{List, Order, deadlocks, is_consistent, lists};
use lockmacro_model_tests::key_queue::world::World;
use lockmacro_model_tests::life;
use lockmacro_model_tests::mutants::out_of_place;

#[test]
fn random_schedules_keep_every_promise() {
    for seed in 0..2_000 {
        let report = World::random(seed).run();
        assert!(report.violations.is_empty(), "seed {seed}: {:?}", report.violations);
    }
}

/// Schedules in which the key idled for 5 to 17 seconds while callers were awake.
#[test]
fn a_waiter_that_comes_too_late_for_the_lease_idles_the_key_once() {
    for seed in [3_001_335, 3_087_491, 3_151_147, 3_185_349, 3_256_508, 3_679_017] {
        let report = World::random(seed).run();
        assert!(report.violations.is_empty(), "seed {seed}: {:?}", report.violations);
    }
}

#[test]
fn sleepers_idle_the_key_for_a_bounded_time_in_all() {
    for world in [World::with_forgotten_waiters(), World::with_late_waiters()] {
        assert_eq!(world.run().violations, Vec::<String>::new());
    }
}

#[test]
fn no_interleaving_of_two_callers_loses_a_wake_up() {
    let budget = Budget { polls: 1, closes: 1, ..Budget::default() };
    for pair in Kind::pairs() {
        let explored = explore(&pair, budget, 1_000_000);
        assert!(explored.failure.is_none(), "{:?}", explored.failure);
    }
}

/// Without this a mutant would be found stale only when somebody tries it.
#[test]
fn every_mutant_has_its_place_in_the_engine() {
    assert_eq!(out_of_place().expect("the engine's files"), Vec::<&str>::new());
}

#[test]
fn every_short_life_of_a_lock_keeps_every_promise() {
    let explored = life::explore::explore(2, 8);
    assert!(explored.failure.is_none(), "{:#?}", explored.failure);
    assert!(explored.states > 100_000, "{} states", explored.states);
}

#[test]
fn only_the_order_of_bytes_never_deadlocks() {
    let all = lists();
    let pairs = || all.iter().flat_map(|one| all.iter().map(|two| [one.clone(), two.clone()]));
    let any = |order| pairs().any(|of: [List; 2]| deadlocks(&of, order));
    assert!(!any(Order::Bytes) && !any(Order::PermitsLastOrRefused));
    assert!(any(Order::SharedLast) && any(Order::PermitsLast) && any(Order::Listed));
    assert!(!pairs().any(|of| is_consistent(&of) && deadlocks(&of, Order::PermitsLast)));
}
