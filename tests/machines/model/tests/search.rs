//! The models are searched, and broken ones are refuted.

use std::fmt::Debug;

use lockmacro_model_tests::lock::Lock;
use lockmacro_model_tests::redlock::Redlock;
use lockmacro_model_tests::repair::{self, Repair};
use lockmacro_model_tests::search::{Model, search};
use lockmacro_model_tests::server::Rules;
use lockmacro_model_tests::sharing::{self, Sharing};
use lockmacro_model_tests::variant::Variant;

const UNBOUNDED: usize = 1_000;

fn lock(callers: [u8; 3], faults: u8, ticks: u8) -> Lock {
    let rules = Rules { ttl: 2, confirm_window: 1, lease: 2, block: 2, variant: Variant::None };
    Lock { rules, callers, faults, ticks }
}

fn redlock(clients: usize, restarts: u8, ticks: u8) -> Redlock {
    Redlock { variant: Variant::None, clients, ttl: 2, ahead: [0, 0, 1], restarts, ticks }
}

/// A repair is sent so early that nobody's attempt lasts from before it until the lease is over.
fn repair(ttls: [u8; 2], restarts: u8, ticks: u8) -> Repair {
    let variant = repair::Variant::None;
    let young = ttls[0].max(ttls[1]);
    Repair { variant, ttls, young, attempt: 1, repair: 1, drift: 0, restarts, ticks }
}

fn sharing(limits: &[u8], faults: u8, ticks: u8) -> Sharing {
    let (variant, limits) = (sharing::Variant::None, limits.to_vec());
    Sharing { variant, limits, ttl: 2, confirm_window: 1, lease: 2, faults, ticks }
}

/// No reachable state breaks anything; all of them were searched, and at least this number.
fn nothing_breaks(model: &impl Model, least: usize) {
    let searched = search(model, UNBOUNDED).unwrap_or_else(|refuted| panic!("{refuted}"));
    println!("{searched:?}");
    assert!(searched.is_complete && searched.states > least, "{searched:?}");
}

#[test]
fn three_processes_without_faults() {
    nothing_breaks(&lock([1, 1, 1], 0, 2), 100_000);
}

#[test]
fn three_processes_with_a_fault_and_a_turn_of_two() {
    let searched = search(&lock([2, 1, 1], 1, 3), 11).unwrap_or_else(|refuted| panic!("{refuted}"));
    assert!(searched.states > 100_000, "{searched:?}");
}

#[test]
fn two_processes_with_a_fault() {
    nothing_breaks(&lock([1, 1, 0], 1, 2), 10_000);
}

#[test]
fn two_processes_with_turns_of_two() {
    nothing_breaks(&lock([2, 1, 0], 0, 2), 10_000);
}

#[test]
fn a_redlock_of_three_clients() {
    nothing_breaks(&redlock(3, 0, 1), 100_000);
}

#[test]
fn a_redlock_with_a_node_that_forgets() {
    nothing_breaks(&redlock(2, 1, 3), 100_000);
}

#[test]
fn a_redlock_that_repairs_its_nodes() {
    nothing_breaks(&repair([3, 3], 2, 3), 100_000);
}

/// The rival's attempt, and its lease, may last longer than the lock at the nodes.
#[test]
fn a_redlock_that_repairs_its_nodes_with_different_ttls() {
    nothing_breaks(&repair([3, 4], 1, 5), 100_000);
}

#[test]
fn a_redlock_that_repairs_its_nodes_with_a_fast_clock() {
    nothing_breaks(&Repair { drift: 1, ..repair([4, 4], 1, 4) }, 100_000);
}

#[test]
fn readers_and_writers() {
    nothing_breaks(&sharing(&[0, 1, 0, 1], 0, 2), 10_000);
}

#[test]
fn readers_and_writers_with_a_fault() {
    nothing_breaks(&sharing(&[0, 1, 0], 1, 3), 10_000);
}

#[test]
fn two_permits_wanted_by_three_and_a_writer() {
    nothing_breaks(&sharing(&[2, 2, 2, 1], 0, 2), 10_000);
}

#[test]
fn two_permits_wanted_by_three_with_a_fault() {
    nothing_breaks(&sharing(&[2, 2, 2], 1, 3), 10_000);
}

fn refuted(variant: impl Debug, model: &impl Model, why: &str) {
    let refuted = search(model, UNBOUNDED).expect_err("a mistake that is found");
    println!("{variant:?}: {refuted}");
    assert!(refuted.why.contains(why), "{variant:?}: {refuted}");
}

#[test]
fn broken_locks_are_refuted() {
    for (variant, callers, faults, why) in [
        (Variant::ReleaseWithoutCompare, [1, 1, 0], 0, "a lock it does not hold"),
        (Variant::NotConfirmed, [1, 1, 0], 0, "a lock it does not hold"),
        (Variant::TakenUpTooLate, [2, 0, 0], 0, "a lock it does not hold"),
        (Variant::QueueEntryKept, [1, 1, 0], 1, "left behind"),
        (Variant::FencePassedOn, [2, 0, 0], 0, "not larger"),
        (Variant::CountedFromTheAnswer, [1, 0, 0], 0, "a lock it does not hold"),
        (Variant::NeverAsksAgain, [1, 1, 0], 1, "nobody can go on"),
    ] {
        let mut broken = lock(callers, faults, 3);
        broken.rules.variant = variant;
        refuted(variant, &broken, why);
    }
}

#[test]
fn broken_redlocks_are_refuted() {
    for (variant, restarts, why) in [
        (Variant::FenceOfOneNode, 0, "not larger"),
        (Variant::NoSecondRound, 0, "not larger"),
        (Variant::ForgetfulNodeVotes, 1, "two clients"),
    ] {
        let clients = if variant == Variant::ForgetfulNodeVotes { 2 } else { 3 };
        let broken = Redlock { variant, ..redlock(clients, restarts, 2) };
        refuted(variant, &broken, why);
    }
}

#[test]
fn broken_repairs_are_refuted() {
    use repair::Variant;
    for (variant, drift, restarts) in [
        (Variant::WithoutMajority, 0, 2),
        (Variant::Late, 0, 2),
        (Variant::OnAnotherConnection, 0, 3),
        (Variant::Overwrites, 0, 2),
        (Variant::NoAllowance, 1, 1),
    ] {
        let broken = Repair { variant, drift, ..repair([3, 3], restarts, 6) };
        refuted(variant, &broken, "two clients");
    }
    // A rival may have begun before the repair, and collect votes when a node has forgotten all.
    let broken = Repair { attempt: 2, ..repair([3, 3], 2, 6) };
    refuted("a longer attempt", &broken, "two clients");
}

#[test]
fn broken_sharing_is_refuted() {
    use sharing::Variant;
    for (variant, limits, faults, why) in [
        (Variant::SharedBesideExclusive, [0, 1, 0], 0, "not alone"),
        (Variant::OneMorePermit, [2, 2, 2], 0, "more bodies than permits"),
        (Variant::Overtakes, [0, 1, 0], 0, "overtaken"),
        (Variant::CountsAfterItsLease, [2, 2, 2], 1, "may enter, and waits"),
        (Variant::ReleasesAll, [0, 0, 0], 0, "no lease at the server"),
        (Variant::OnlyTheFirst, [1, 0, 0], 0, "may enter, and waits"),
        (Variant::StaysInQueue, [1, 1, 0], 0, "left behind"),
    ] {
        let broken = Sharing { variant, ..sharing(&limits, faults, 3) };
        refuted(variant, &broken, why);
    }
}
