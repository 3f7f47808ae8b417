//! The program that runs simulations by hand, with a fault in the scripts of the servers.

use std::process::{Command, Output};

/// Another caller is granted a lock that is held: some of the first seeds fail.
const MUTANT: &str = "a held lock is granted";

fn simulation(mutant: &str, args: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_simulation"));
    program.args(args).env("LOCKMACRO_MUTANT", mutant).output().expect("it was built")
}

fn lines(output: &Output) -> Vec<&str> {
    std::str::from_utf8(&output.stdout).expect("text").lines().collect()
}

/// The first seed that fails, and the oracle.
fn failing() -> (String, String) {
    let found = simulation(MUTANT, &["--seeds", "200", "--first", "--threads", "1"]);
    assert_eq!(found.status.code(), Some(1));
    let lines = lines(&found);
    let failure = lines.iter().find_map(|line| line.strip_prefix("seed ")).expect("one fails");
    let (seed, failure) = failure.split_once(": ").expect("its number");
    let (oracle, _) = failure.split_once(": ").expect("an oracle");
    (seed.to_owned(), oracle.to_owned())
}

#[test]
fn a_seed_that_fails_is_shrunk_to_what_its_failure_needs() {
    let (seed, oracle) = failing();
    let whole = simulation(MUTANT, &["--seed", &seed]);
    assert_eq!(whole.status.code(), Some(1));
    let shrunk = simulation(MUTANT, &["--seed", &seed, "--shrink"]);
    assert_eq!(shrunk.status.code(), Some(1));
    let lines = lines(&shrunk);
    let failure = format!("seed {seed}: {oracle}: ");
    assert!(lines.last().is_some_and(|last| last.starts_with(&failure)), "{:?}", lines.last());
    // Without these parts it fails by the same oracle; without one more it does not.
    let without: Vec<_> = lines[0].split(' ').collect();
    assert!(without.contains(&"--without"), "two processes are enough: {without:?}");
    let again = simulation(MUTANT, &without);
    assert_eq!(self::lines(&again).last(), lines.last());
    assert_eq!(self::lines(&again)[..], lines[1..], "of one trace");
}

#[test]
fn a_seed_that_passes_has_a_trace_that_names_its_scripts() {
    let output = simulation("", &["--seed", "1", "--trace"]);
    assert_eq!(output.status.code(), Some(0), "{:?}", lines(&output).last());
    let calls: Vec<_> = lines(&output);
    let calls = calls.iter().filter_map(|line| line.split_once("EVALSHA ")).collect::<Vec<_>>();
    assert!(!calls.is_empty());
    let is_hash = |name: &str| name.len() == 40 && name.bytes().all(|b| b.is_ascii_hexdigit());
    for (_, call) in calls {
        assert!(!call.split(' ').any(is_hash), "{call}");
    }
}
