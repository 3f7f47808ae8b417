//! Mutants: copies of the engine's files with one line changed, each of which has to be found by
//! the model.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::{key_queue, life};

pub(crate) const QUEUE: &str = "lockmacro-runtime/src/engine/queue/key_queue.rs";
pub(crate) const LEASE: &str = "lockmacro-runtime/src/protocol/lease.rs";
pub(crate) const LIFE: &str = "lockmacro-runtime/src/engine/lease/life.rs";

/// What the copy needs of the workspace.
const COPIED: [&str; 11] = [
    QUEUE,
    LEASE,
    LIFE,
    "lockmacro-runtime/src/sys/backoff.rs",
    "Cargo.lock",
    "README.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "tests/machines/model/Cargo.toml",
    "tests/machines/model/src",
    "tests/machines/model/tests",
];

/// One changed line.
pub(crate) struct Mutant {
    pub(crate) file: &'static str,
    pub(crate) name: &'static str,
    /// The oracle that should fail, or one of several by `|`.
    pub(crate) oracle: &'static str,
    pub(crate) old: &'static str,
    pub(crate) new: &'static str,
}

/// The mutants of each model, and how the model is run.
const ALL: [(&str, &[Mutant]); 2] =
    [("--first", key_queue::mutants::MUTANTS), ("--first-life", life::mutants::MUTANTS)];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The mutants whose text is not found exactly once.
pub fn out_of_place() -> io::Result<Vec<&'static str>> {
    let mut stale = Vec::new();
    for mutant in ALL.iter().flat_map(|(_, mutants)| *mutants) {
        let text = fs::read_to_string(root().join(mutant.file))?;
        if text.matches(mutant.old).count() != 1 {
            stale.push(mutant.name);
        }
    }
    Ok(stale)
}

/// Builds each mutant in a copy of the sources, and prints by which oracle it is found. Returns
/// whether each was found by the oracle that should fail.
pub fn try_all(only: Option<&str>) -> io::Result<bool> {
    let all = root().canonicalize()?.join("target/mutants/model");
    let (copy, target) = (all.join("sources"), all.join("build"));
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    for path in COPIED {
        let to = copy.join(path);
        to.parent().map_or(Ok(()), fs::create_dir_all)?;
        let copied = Command::new("cp").arg("-R").args([&root().join(path), &to]).status()?;
        if !copied.success() {
            return Err(io::Error::other(format!("{path} cannot be copied")));
        }
    }
    let workspace = fs::read_to_string(root().join("Cargo.toml"))?;
    fs::write(copy.join("Cargo.toml"), with_one_member(&workspace))?;
    println!("| mutant | should fail | failed |\n|---|---|---|");
    let (mut tried, mut found) = (0, 0);
    let all = ALL.iter().flat_map(|(how, mutants)| mutants.iter().map(move |one| (how, one)));
    let is_tried = |how: &str, one: &Mutant| {
        only.is_none_or(|only| one.name.contains(only) || how.ends_with(only))
    };
    for (how, mutant) in all.filter(|(how, one)| is_tried(how, one)) {
        let sound = fs::read_to_string(copy.join(mutant.file))?;
        fs::write(copy.join(mutant.file), sound.replace(mutant.old, mutant.new))?;
        let output = Command::new(env!("CARGO"))
            .args(["run", "--release", "--quiet", "--package", "lockmacro-model-tests", "--", how])
            .current_dir(&copy)
            .env("CARGO_TARGET_DIR", &target)
            .env("RUSTFLAGS", "-Awarnings")
            .output()?;
        fs::write(copy.join(mutant.file), sound)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let failed = match text.split_once(": ") {
            Some((oracle, _)) => oracle,
            None if output.status.success() => "none",
            None => "nothing: it panics, or does not build",
        };
        println!("| {} | {} | {failed} |", mutant.name, mutant.oracle.replace('|', " or "));
        tried += 1;
        found += usize::from(mutant.oracle.split('|').any(|oracle| oracle == failed));
    }
    println!("\n{found} of {tried} mutants were found by the oracle that should fail.");
    Ok(found == tried)
}

/// The workspace with this package alone.
fn with_one_member(text: &str) -> String {
    let parts = text.split_once("members = [").zip(text.split_once("[workspace.package]"));
    match parts {
        Some(((before, _), (_, after))) => {
            format!("{before}members = [\"tests/machines/model\"]\n\n[workspace.package]{after}")
        }
        None => text.to_owned(),
    }
}
