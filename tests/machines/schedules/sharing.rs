//! Random schedules of callers that share a lock, and of exclusive ones among them.

mod merged;
mod mutants;
mod oracles;
mod schedule;

use crate::real::Real;
use crate::runner::keeps_every_invariant;
use crate::simulated::Simulated;
use oracles::JUDGES;
use schedule::run;

#[test]
fn every_schedule_of_sharing_callers_keeps_every_invariant() {
    keeps_every_invariant(Real::start, 1_000, (run, &JUDGES));
}

#[test]
fn a_simulated_server_answers_sharing_callers_as_a_real_one_does() {
    keeps_every_invariant(Simulated::beside_a_real_one, 500, (run, &JUDGES));
}
