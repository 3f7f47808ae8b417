//! Mutants: copies of the client and of its scripts with one line changed, each of which has to be
//! caught by a simulation.
//!
//! All mutants of the client are built at once, in a copy of the sources: each changed place asks
//! which mutant is tried. The shipped sources know nothing of this. The simulated servers change
//! scripts as they are loaded.

mod build;
mod client;
mod scripts;
mod threads;

use std::borrow::Cow;
use std::process::Command;
use std::sync::LazyLock;

/// The variable that names the mutant to try.
const VARIABLE: &str = "LOCKMACRO_MUTANT";
/// Seeds that are tried before a mutant counts as not caught: of processes, and of threads.
const SEEDS: [&str; 2] = ["10000", "100000"];

/// A lock is given away while its holder relies on it. That is seen at the server, or when the
/// next body begins, whichever is first.
const LEASE: &str = "lease|exclusion";

/// One changed line.
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    /// The oracle that should fail, or one of several by `|`.
    pub(crate) oracle: &'static str,
    /// The file of the runtime; none for scripts.
    pub(crate) file: &'static str,
    pub(crate) old: &'static str,
    /// What replaces it. `MUTANT` in it is whether this mutant is tried; without that, the whole
    /// text is used only then.
    pub(crate) new: &'static str,
}

/// A script as the mutant that is tried has it.
pub(crate) fn changed(script: &[u8]) -> Cow<'_, [u8]> {
    static TRIED: LazyLock<Option<&'static Mutant>> = LazyLock::new(|| {
        let name = std::env::var(VARIABLE).ok()?;
        scripts::MUTANTS.iter().find(|mutant| mutant.name == name)
    });
    match *TRIED {
        Some(mutant) => {
            let script = String::from_utf8_lossy(script);
            Cow::Owned(script.replace(mutant.old, mutant.new).into_bytes())
        }
        None => Cow::Borrowed(script),
    }
}

/// By which oracle the mutant that is tried has to be caught.
pub(crate) fn expected() -> Option<&'static str> {
    static EXPECTED: LazyLock<Option<&'static str>> = LazyLock::new(|| {
        let name = std::env::var(VARIABLE).ok()?;
        let mut all = of_the_client().chain(scripts::MUTANTS);
        all.find(|mutant| mutant.name == name).map(|mutant| mutant.oracle)
    });
    *EXPECTED
}

/// The mutants of the client.
fn of_the_client() -> impl Iterator<Item = &'static Mutant> {
    client::MUTANTS.iter().chain(threads::MUTANTS)
}

/// Builds all mutants, and prints by which oracle each is caught, and how soon. Returns whether
/// each was caught by the oracle that should fail.
pub fn try_all(only: Option<&str>) -> bool {
    let program = match build::build() {
        Ok(program) => program,
        Err(error) => {
            eprintln!("the mutants cannot be built: {error}");
            return false;
        }
    };
    let mutants = of_the_client().chain(scripts::MUTANTS);
    let mutants = mutants.filter(|mutant| only.is_none_or(|only| mutant.name.contains(only)));
    println!("| mutant | should fail | failed | seeds |\n|---|---|---|---|");
    let (mut all, mut caught) = (0, 0);
    for mutant in mutants {
        let is_of_threads = threads::MUTANTS.iter().any(|other| other.name == mutant.name);
        let output = Command::new(&program)
            .args(["--seeds", SEEDS[usize::from(is_of_threads)], "--first"])
            .args(is_of_threads.then_some("--interleaved"))
            .env(VARIABLE, mutant.name)
            .output()
            .expect("the program was built");
        let text = String::from_utf8_lossy(&output.stdout);
        let failure = text.lines().find_map(|line| line.strip_prefix("seed "));
        let failed = failure.and_then(|line| line.split(": ").nth(1)).unwrap_or("none");
        let seeds = text.lines().last().and_then(|line| line.split(' ').next()).unwrap_or("?");
        let expected = mutant.oracle.replace('|', " or ");
        println!("| {} | {expected} | {failed} | {seeds} |", mutant.name);
        all += 1;
        caught += usize::from(mutant.oracle.split('|').any(|oracle| oracle == failed));
    }
    println!("\n{caught} of {all} mutants were caught by the oracle that should fail.");
    caught == all
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Without this the mutants would be found stale only when somebody tries them.
    #[test]
    fn every_mutant_has_its_place_in_the_sources() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../lockmacro-runtime/src");
        let read = |path: &str| fs::read_to_string(sources.join(path)).expect(path);
        for mutant in of_the_client() {
            assert!(read(mutant.file).contains(mutant.old), "{}: {}", mutant.name, mutant.file);
        }
        let scripts = texts(&sources);
        for mutant in scripts::MUTANTS {
            assert!(scripts.contains(mutant.old), "{}", mutant.name);
        }
    }

    /// The scripts in a directory.
    fn texts(directory: &Path) -> String {
        let entries = fs::read_dir(directory).expect("a directory");
        let texts = entries.map(|entry| {
            let path = entry.expect("an entry").path();
            match path.extension() {
                _ if path.is_dir() => texts(&path),
                Some(end) if end == "lua" => fs::read_to_string(&path).expect("a script"),
                _ => String::new(),
            }
        });
        texts.collect()
    }
}
