//! The measured cases: the contenders, the number of waiters, and the hold time.

use std::fmt;
use std::time::Duration;

use clap::{Parser, ValueEnum};

/// A way to wait for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Contender {
    Lockmacro,
    /// The same with a ttl that is longer than the confirm window, so that the holder confirms a
    /// hand-off.
    Confirmed,
    Rslock,
    Poll,
    /// A mutex of the process around the poller: one caller of each process asks the server.
    Mutex,
    /// One task runs the bodies without any lock: no lock can be faster.
    Unlocked,
}

impl Contender {
    pub fn name(self) -> &'static str {
        match self {
            Self::Lockmacro => "lockmacro, ttl 5 s",
            Self::Confirmed => "lockmacro, ttl 30 s",
            Self::Rslock => "rslock",
            Self::Poll => "poll every 10 ms",
            Self::Mutex => "mutex, then poll",
            Self::Unlocked => "one task, no lock",
        }
    }

    pub fn ttl(self) -> Duration {
        Duration::from_secs(if self == Self::Confirmed { 30 } else { 5 })
    }

    /// The number of tasks of the process with this number, distributed as evenly as possible.
    pub fn tasks(self, cell: &Cell, process: u32) -> u32 {
        match self {
            Self::Unlocked => u32::from(process == 0),
            _ => (cell.waiters + process) / cell.processes,
        }
    }

    /// How often the contender's scripts call SET for one acquisition. The server counts such a
    /// call like a client's command.
    pub fn sets_in_scripts(self) -> u64 {
        match self {
            Self::Lockmacro | Self::Confirmed => 1,
            Self::Rslock | Self::Poll | Self::Mutex | Self::Unlocked => 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// All callers request the lock at once, each of them once.
    Burst,
    /// One caller holds the lock while the others arrive one after another, each of them once.
    Line,
    /// Every caller requests the lock again as soon as it has released it.
    Loop,
}

impl Shape {
    /// For how long callers request the lock again.
    pub fn lasts(self) -> Duration {
        match self {
            Self::Burst | Self::Line => Duration::ZERO,
            Self::Loop => Duration::from_millis(1_500),
        }
    }

    /// When callers that still wait give up.
    pub fn limit(self) -> Duration {
        self.lasts() + Duration::from_millis(1_500)
    }
}

/// One way to contend for a key, the same for all contenders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    pub shape: Shape,
    pub waiters: u32,
    pub processes: u32,
    /// Milliseconds.
    pub hold: u64,
    /// Whether the server is on another machine.
    pub far: bool,
}

impl Cell {
    pub fn all() -> Vec<Self> {
        let mut cells = Vec::new();
        let mut add = |shape, processes, far, hold, waiters: &[u32]| {
            let cell = |&waiters| Self { shape, waiters, processes, hold, far };
            cells.extend(waiters.iter().map(cell));
        };
        for (processes, hold) in [(1, 0), (1, 1), (4, 0), (4, 1)] {
            add(Shape::Burst, processes, false, hold, &[2, 10, 100, 1_000]);
        }
        add(Shape::Line, 1, false, 0, &[100, 1_000]);
        for (processes, far) in [(1, false), (4, false), (4, true)] {
            add(Shape::Loop, processes, far, 0, &[100]);
            add(Shape::Loop, processes, far, 1, &[100]);
        }
        cells
    }

    pub fn contenders(&self) -> &'static [Contender] {
        use Contender::{Confirmed, Lockmacro, Mutex, Poll, Rslock, Unlocked};
        match (self.shape, self.hold, self.far) {
            (Shape::Loop, 1, false) => &[Lockmacro, Rslock, Poll, Mutex, Confirmed, Unlocked],
            (Shape::Loop, 1, true) => &[Lockmacro, Rslock, Poll, Mutex, Unlocked],
            // The costs of a confirmation do not depend on the number of waiters.
            (_, 1, false) if self.waiters == 100 => &[Lockmacro, Rslock, Poll, Mutex, Confirmed],
            _ => &[Lockmacro, Rslock, Poll, Mutex],
        }
    }
}

/// The order to one process, as a line of text.
#[derive(Debug, Clone, Parser)]
#[command(no_binary_name = true)]
pub struct Order {
    pub contender: Contender,
    pub shape: Shape,
    pub tasks: u32,
    /// Milliseconds.
    pub hold: u64,
    /// When to start, in nanoseconds on the clock that all processes share.
    pub start: u64,
    pub key: String,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { contender, shape, tasks, hold, start, key } = self;
        write!(f, "{} {} {tasks} {hold} {start} {key}", word(contender), word(shape))
    }
}

fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
