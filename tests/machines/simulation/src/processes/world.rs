//! What the processes get in place of the system.

use std::task::Waker;
use std::time::Duration;

use lockmacro_runtime::simulation::{Opening, Task, World};

use crate::processes::opening::open;
use crate::processes::process::{Clock, TaskOf};
use crate::processes::sim::sim;

/// When the simulation begins, since 1970.
pub(crate) const BEGIN: Duration = Duration::from_secs(1_700_000_000);

/// The system of the process that is polled.
pub(crate) struct OfProcess;

fn clock() -> Clock {
    let sim = sim();
    sim.current().map_or(Clock { start: Duration::ZERO, rate: 1.0 }, |process| process.clock)
}

impl World for OfProcess {
    fn since_boot(&self) -> Duration {
        sim().count_step();
        clock().after(sim().now())
    }

    fn since_1970(&self) -> Duration {
        // Dates depend on nothing but the start, so a machine's date may be wrong by that.
        BEGIN + clock().after(sim().now())
    }

    fn random(&self) -> u64 {
        match sim().current() {
            Some(process) => process.random.borrow_mut().u64(..),
            None => 4,
        }
    }

    fn adopt(&self, task: Task) -> Task {
        match sim().current() {
            Some(process) => Box::pin(TaskOf::new(process.nth, task)),
            None => task,
        }
    }

    fn unparks_here(&self) -> Waker {
        Waker::noop().clone()
    }

    fn park(&self, longest: Duration) {
        sim().fails("blocking", format_args!("a task blocks its runtime for {longest:?}"));
    }

    fn open(&self, address: &str) -> Opening {
        open(address)
    }
}
