//! Parts of a scenario that a simulation is run without, to find those that a failure needs.

use std::collections::BTreeSet;
use std::fmt;

use crate::processes::faults::Fault;
use crate::processes::run::{Outcome, run_without};
use crate::processes::scenario::Scenario;

/// A part of a scenario, by its number there, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// A fault, together with the fault that ends it.
    Fault(usize),
    /// The calls of a process, and not the process: the others keep their numbers.
    Process(usize),
}

impl Part {
    /// Reads `fault 3` or `process 2`.
    pub fn of(kind: &str, number: &str) -> Option<Self> {
        let number = number.parse().ok()?;
        match kind {
            "fault" => Some(Part::Fault(number)),
            "process" => Some(Part::Process(number)),
            _ => None,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Fault(nth) => write!(f, "--without fault {nth}"),
            Part::Process(nth) => write!(f, "--without process {nth}"),
        }
    }
}

impl Scenario {
    /// Leaves parts out. The numbers are those of the whole scenario.
    pub(crate) fn leave_out(&mut self, parts: &[Part]) {
        let mut faults = BTreeSet::new();
        for part in parts {
            match *part {
                Part::Fault(nth) => faults.extend([Some(nth), self.end_of(nth)]),
                Part::Process(nth) => {
                    if let Some(plan) = self.processes.get_mut(nth) {
                        plan.workers.clear();
                        (plan.works, plan.lasts) = (false, false);
                    }
                }
            }
        }
        let mut nth = 0..;
        self.faults.retain(|_| !faults.contains(&nth.next()));
    }

    /// The fault that ends this one.
    fn end_of(&self, nth: usize) -> Option<usize> {
        let (_, fault) = self.faults.get(nth)?;
        let is_end = |other: &Fault| match (*fault, *other) {
            (Fault::Freeze { process }, Fault::Thaw { process: thawed }) => process == thawed,
            (Fault::Stop { host }, Fault::Start { host: started, .. }) => host == started,
            (Fault::Failover { .. }, Fault::Rejoin) => true,
            _ => false,
        };
        (nth + 1..self.faults.len()).find(|nth| is_end(&self.faults[*nth].1))
    }

    /// All parts. The ends of faults are none.
    fn parts(&self) -> Vec<Part> {
        let is_end = |fault: &Fault| {
            matches!(fault, Fault::Thaw { .. } | Fault::Start { .. } | Fault::Rejoin)
        };
        let faults = self.faults.iter().enumerate().filter(|(_, (_, fault))| !is_end(fault));
        let faults = faults.map(|(nth, _)| Part::Fault(nth));
        faults.chain((0..self.processes.len()).map(Part::Process)).collect()
    }
}

/// Leaves out what the same oracle fails without, beside `without`. Returns all that was left out,
/// and what the rest showed.
pub fn shrink(seed: u64, mut without: Vec<Part>) -> (Vec<Part>, Outcome) {
    let mut outcome = run_without(seed, &without, true);
    let Some(oracle) = outcome.failure.as_ref().map(|failure| failure.oracle) else {
        return (without, outcome);
    };
    loop {
        let before = without.len();
        for part in Scenario::draw(seed).parts() {
            if without.contains(&part) {
                continue;
            }
            without.push(part);
            let smaller = run_without(seed, &without, true);
            match &smaller.failure {
                Some(failure) if failure.oracle == oracle => outcome = smaller,
                _ => drop(without.pop()),
            }
        }
        if without.len() == before {
            return (without, outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::scenario::ms;

    #[test]
    fn a_fault_is_left_out_with_its_end_and_the_others_keep_their_numbers() {
        let mut scenario = Scenario::draw(0);
        let (stop, start) = (Fault::Stop { host: 0 }, Fault::Start { host: 0, keeps: true });
        let (freeze, thaw) = (Fault::Freeze { process: 1 }, Fault::Thaw { process: 1 });
        let delete = Fault::Delete { key: 0 };
        scenario.faults = [stop, freeze, delete, start, thaw].map(|fault| (ms(1), fault)).into();
        assert_eq!(scenario.parts()[..3], [0, 1, 2].map(Part::Fault));
        scenario.leave_out(&[Part::Fault(0), Part::Fault(2), Part::Process(0), Part::Fault(9)]);
        assert_eq!(scenario.faults, [freeze, thaw].map(|fault| (ms(1), fault)));
        assert!(scenario.processes[0].workers.is_empty());
    }
}
