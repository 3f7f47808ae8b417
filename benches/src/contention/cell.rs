//! What is measured: who wants the lock, how many at once, and for how long.

use std::fmt;
use std::time::Duration;

use clap::{Parser, ValueEnum};

/// A way to wait for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Contender {
    Lockmacro,
    /// The same with a ttl longer than a hand-over is good for, so that its holder confirms it.
    Confirmed,
    Rslock,
    Poll,
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
            Self::Unlocked => "one task, no lock",
        }
    }

    pub fn ttl(self) -> Duration {
        Duration::from_secs(if self == Self::Confirmed { 30 } else { 5 })
    }

    /// The tasks of the process of this number, as evenly as it goes.
    pub fn tasks(self, cell: &Cell, process: u32) -> u32 {
        match self {
            Self::Unlocked => u32::from(process == 0),
            _ => (cell.waiters + process) / cell.processes,
        }
    }

    /// How often its scripts call SET for one acquisition. The server counts such a call like one
    /// of a client.
    pub fn sets_in_scripts(self) -> u64 {
        match self {
            Self::Lockmacro | Self::Confirmed => 1,
            Self::Rslock | Self::Poll | Self::Unlocked => 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// All want it at once, each of them once.
    Burst,
    /// One holds it while the others come one after another, each of them once.
    Line,
    /// All want it again as soon as they have given it back.
    Loop,
}

impl Shape {
    /// For how long everybody begins again.
    pub fn lasts(self) -> Duration {
        match self {
            Self::Burst | Self::Line => Duration::ZERO,
            Self::Loop => Duration::from_millis(1_500),
        }
    }

    /// When those who wait still give up.
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
        use Contender::{Confirmed, Lockmacro, Poll, Rslock, Unlocked};
        match (self.shape, self.hold, self.far) {
            (Shape::Loop, 1, false) => &[Lockmacro, Rslock, Poll, Confirmed, Unlocked],
            (Shape::Loop, 1, true) => &[Lockmacro, Rslock, Poll, Unlocked],
            // What a confirmation costs does not depend on how many wait.
            (_, 1, false) if self.waiters == 100 => &[Lockmacro, Rslock, Poll, Confirmed],
            _ => &[Lockmacro, Rslock, Poll],
        }
    }
}

/// What one process is to do, as a line of text.
#[derive(Debug, Clone, Parser)]
#[command(no_binary_name = true)]
pub struct Order {
    pub contender: Contender,
    pub shape: Shape,
    pub tasks: u32,
    /// Milliseconds.
    pub hold: u64,
    /// On the clock that all processes share, in nanoseconds.
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
