//! A clock for a redis-server, which a test sets.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

/// A clock that stands still between two settings.
///
/// The servers that go by it load a library in place of the system's clock, which a compiler for C
/// builds.
#[derive(Debug)]
pub struct Clock {
    file: File,
    directory: TempDir,
}

impl Clock {
    /// A clock that shows a time since 1970.
    pub fn at(now: Duration) -> Clock {
        let directory = tempfile::tempdir().expect("a directory for a clock");
        let source = directory.path().join("clock.c");
        std::fs::write(&source, include_str!("clock.c")).expect("a file is written");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&directory.path().join("clock.so"), &source])
            .status();
        assert!(built.is_ok_and(|status| status.success()), "cc cannot build {source:?}");
        let file = File::create(directory.path().join("now")).expect("a file is made");
        let clock = Clock { file, directory };
        clock.set(now);
        clock
    }

    /// Sets the clock. A server reads it at once.
    pub fn set(&self, now: Duration) {
        let now = i64::try_from(now.as_micros()).expect("not so late");
        self.file.write_all_at(&now.to_ne_bytes(), 0).expect("a file is written");
    }

    /// Makes a command go by the clock.
    pub(crate) fn apply(&self, command: &mut Command) {
        let path = |name: &str| -> PathBuf { self.directory.path().join(name) };
        command.env("LD_PRELOAD", path("clock.so")).env("LOCKMACRO_CLOCK", path("now"));
    }
}
