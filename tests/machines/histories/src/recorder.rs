//! Writes entries while they happen, from several processes to one file.

use std::fs::{File, OpenOptions};
use std::io::{Result, Write as _};
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

use crate::entry::{Entry, Function, Kind};

/// The time in nanoseconds, by the same clock for all processes of the machine.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// A file to which processes append lines of JSON.
#[derive(Debug)]
pub struct Recorder {
    file: File,
}

impl Recorder {
    /// Opens the file, or makes it.
    pub fn open(path: &Path) -> Result<Recorder> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Recorder { file })
    }

    /// Writes what happens now.
    pub fn note(&self, kind: Kind, function: Function, key: &str, process: &str) {
        self.write(Entry::new(kind, function, key, process, now()));
    }

    /// Writes an entry. One that is missing is noticed by the judge, as most entries are needed
    /// for another one.
    pub fn write(&self, entry: Entry) {
        // One write for one line: that is what makes a line whole.
        let _ = (&self.file).write_all(format!("{}\n", entry.to_json()).as_bytes());
    }
}
