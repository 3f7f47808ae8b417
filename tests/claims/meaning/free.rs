//! What a free lock costs its process: the allocations and the system calls of a pair of acquire
//! and release, which no load on the machine changes.

use std::collections::BTreeMap;
use std::process::Command;

use lockmacro_tests::Server;

const PAIRS: usize = 200;

/// Those of the `redis` crate and of tokio are among them.
const ALLOCATIONS: usize = if cfg!(feature = "metrics") { 29 } else { 22 };

#[test]
fn a_free_pair_makes_no_more_allocations_than_it_did() {
    let server = Server::start();
    let mut child = Command::new(env!("CARGO_BIN_EXE_free-pairs"));
    let done = child.args([server.url(), PAIRS.to_string()]).output().expect("it starts");
    let each = String::from_utf8_lossy(&done.stdout).trim().parse::<usize>();
    let each = each.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&done.stderr)));
    assert!(each <= ALLOCATIONS, "{each}");
}

#[test]
fn a_free_pair_makes_no_system_call_but_for_the_socket_and_the_token() {
    let server = Server::start();
    let (fewer, more) = (calls(&server, PAIRS), calls(&server, 2 * PAIRS));
    let each = more.iter().map(|(name, count)| {
        let before = fewer.get(name).copied().unwrap_or_default();
        (name.as_str(), count.saturating_sub(before) as f64 / PAIRS as f64)
    });
    let of_socket = ["sendto", "recvfrom", "epoll_wait", "write", "writev", "read", "futex"];
    // Less than one in ten pairs: what the thread and its timers do meanwhile.
    let others: BTreeMap<_, _> =
        each.filter(|(name, each)| !of_socket.contains(name) && *each > 0.1).collect();
    let names: Vec<_> = others.keys().copied().collect();
    assert_eq!(names, ["getpid", "getrandom"], "{others:?}");
    assert!(others.values().all(|each| *each <= 1.1), "{others:?}");
}

/// The system calls of the thread that makes this number of pairs, and how often it makes each.
fn calls(server: &Server, pairs: usize) -> BTreeMap<String, usize> {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("calls");
    let mut child = Command::new("strace");
    child.arg("-c").arg("-o").arg(&out).arg(env!("CARGO_BIN_EXE_free-pairs"));
    let done = child.args([server.url(), pairs.to_string()]).output();
    let done = done.expect("strace is needed, which `tests/run` installs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let table = std::fs::read_to_string(out).expect("strace has written it");
    let counted = table.lines().filter_map(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        Some((columns.last()?.to_string(), columns.get(3)?.parse().ok()?))
    });
    counted.filter(|(name, _)| name != "total").collect()
}
