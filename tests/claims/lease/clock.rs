//! The wall clock of a client decides nothing.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use lockmacro_tests::{Process, Server};

use crate::SOON;

const KEY: &str = "order:42";
const TTL: Duration = Duration::from_millis(4_500);
const HOUR: i64 = 60 * 60;

/// libfaketime of Debian or Fedora, wherever it is.
fn library() -> PathBuf {
    let folders = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(std::fs::read_dir);
    let places = folders.into_iter().flatten().flatten().flatten().map(|place| place.path());
    let near = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from);
    places
        .chain(near)
        .map(|place| place.join("faketime/libfaketimeMT.so.1"))
        .find(|library| library.exists())
        .expect("libfaketime is not installed: run `sh tests/run`, or apt-get install faketime")
}

fn now() -> i64 {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    i64::try_from(time.expect("after 1970").as_secs()).expect("seconds")
}

#[tokio::test]
async fn a_wall_clock_that_jumps_by_an_hour_changes_nothing() {
    let server = Server::start();
    let mut admin = server.admin();
    let directory = tempfile::tempdir().expect("a directory");
    let offset = directory.path().join("offset");
    // Replaced as a whole: it is never read half written.
    let set = |seconds: i64| {
        let new = directory.path().join("new");
        std::fs::write(&new, format!("{seconds:+}")).expect("written");
        std::fs::rename(&new, &offset).expect("renamed");
    };
    set(0);
    let mut command = Command::new(env!("CARGO_BIN_EXE_lease-holder"));
    command
        .args(["clock", &server.url(), KEY, "4500"])
        .env("LD_PRELOAD", library())
        .env("FAKETIME_TIMESTAMP_FILE", &offset)
        .env("FAKETIME_NO_CACHE", "1")
        // The wall clock alone: a jump of the machine's clock moves no other.
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let holder = Process::start(&mut command);
    for shift in [0, HOUR, 0, -HOUR, HOUR, 0] {
        set(shift);
        let start = Instant::now();
        let (mut seen, mut renewed, mut before) = (false, false, TTL);
        while !(seen && renewed) {
            assert!(start.elapsed() < 6 * SOON, "by {shift} s: seen {seen}, renewed {renewed}");
            let line = holder.next_line();
            let (time, held) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert_eq!(held, "true", "shifted by {shift} s");
            let time: i64 = time.parse().expect("seconds");
            seen |= (time - now() - shift).abs() <= 2;
            let left = admin.ttl(KEY).expect("held by the server as well");
            assert!(left <= TTL, "shifted by {shift} s: {left:?}");
            renewed |= left > before;
            before = left;
        }
    }
}
