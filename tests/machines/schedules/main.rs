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
mod runner;
mod schedule;
mod scripts;
mod sharing;
mod simulated;
mod store;

use oracles::JUDGES;
use real::Real;
use runner::keeps_every_invariant;
use schedule::run;
use simulated::Simulated;

#[test]
fn every_schedule_keeps_every_invariant() {
    keeps_every_invariant(Real::start, 2_000, (run, &JUDGES));
}

#[test]
fn every_schedule_keeps_every_invariant_on_a_simulated_server() {
    keeps_every_invariant(Simulated::alone, 500, (run, &JUDGES));
}

#[test]
fn a_simulated_server_answers_every_schedule_as_a_real_one_does() {
    keeps_every_invariant(Simulated::beside_a_real_one, 500, (run, &JUDGES));
}
