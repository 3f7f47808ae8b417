//! Builds the mutants of the client, in a copy of the sources.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::VARIABLE;
use super::of_the_client;

/// What the copy needs of the workspace.
const COPIED: [&str; 5] = [
    "Cargo.lock",
    "lockmacro",
    "lockmacro-runtime",
    "tests/machines/model",
    "tests/machines/simulation",
];

/// Returns the path of the program.
pub(crate) fn build() -> io::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize()?;
    let all = root.join("target/mutants");
    let copy = all.join("sources");
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    for path in COPIED.into_iter().chain(["README.md", "LICENSE-MIT", "LICENSE-APACHE"]) {
        let to = copy.join(path);
        fs::create_dir_all(to.parent().expect("a path inside the copy"))?;
        let copied = Command::new("cp").arg("-R").args([&root.join(path), &to]).status()?;
        if !copied.success() {
            return Err(io::Error::other(format!("{path} cannot be copied")));
        }
    }
    let workspace = fs::read_to_string(root.join("Cargo.toml"))?;
    fs::write(copy.join("Cargo.toml"), with_few_members(&workspace))?;
    let manifest = copy.join("tests/machines/simulation/Cargo.toml");
    let text = fs::read_to_string(&manifest)?;
    fs::write(&manifest, text.replace("lockmacro-tests.path = \"../..\"\n", ""))?;
    change(&copy.join("lockmacro-runtime/src"))?;
    // The model compiles some of the changed files too, and tries no mutant.
    let values = copy.join("tests/machines/model/src/key_queue/value.rs");
    let text = fs::read_to_string(&values)?;
    let none = "pub(crate) mod mutant { pub(crate) fn is_tried(_: &str) -> bool { false } }";
    fs::write(values, format!("{text}{none}\n"))?;
    let built = all.join("build");
    let done = Command::new(env!("CARGO"))
        .args(["build", "--release", "--package", "lockmacro-simulation-tests", "--bin"])
        .arg("simulation")
        .current_dir(&copy)
        .env("CARGO_TARGET_DIR", &built)
        .env("RUSTFLAGS", "-Awarnings --cfg lockmacro_simulation")
        .status()?;
    match done.success() {
        true => Ok(built.join("release/simulation")),
        false => Err(io::Error::other("cargo has failed")),
    }
}

/// The workspace with the members that are copied.
fn with_few_members(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("default-members"));
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    let (before, rest) = text.split_once("members = [").expect("members");
    let (_, after) = rest.split_once(']').expect("the end of the members");
    let members: Vec<_> = COPIED[1..].iter().map(|member| format!("{member:?}")).collect();
    format!("{before}members = [{}]{after}", members.join(", "))
}

/// Makes each changed place ask which mutant is tried.
fn change(sources: &Path) -> io::Result<()> {
    for mutant in of_the_client() {
        let path = sources.join(mutant.file);
        let text = fs::read_to_string(&path)?;
        // Another mutant may have changed the same place before: the original is there as well.
        let Some((before, after)) = text.split_once(mutant.old) else {
            let why = format!("{}: no such place in {}", mutant.name, mutant.file);
            return Err(io::Error::other(why));
        };
        let is_tried = format!("crate::value::mutant::is_tried({:?})", mutant.name);
        let changed = if mutant.new.contains("MUTANT") {
            mutant.new.replace("MUTANT", &is_tried)
        } else if mutant.old.trim_end().ends_with([';', '}']) {
            format!("if {is_tried} {{ {} }} else {{ {} }}", mutant.new, mutant.old)
        } else {
            format!("(if {is_tried} {{ {} }} else {{ {} }})", mutant.new, mutant.old)
        };
        fs::write(&path, format!("{before}{changed}{after}"))?;
    }
    let values = sources.join("value/mod.rs");
    let text = fs::read_to_string(&values)?;
    fs::write(values, format!("{text}pub(crate) mod mutant;\n"))?;
    fs::write(
        sources.join("value/mutant.rs"),
        format!(
            "static TRIED: std::sync::LazyLock<String> =\n    \
             std::sync::LazyLock::new(|| std::env::var({VARIABLE:?}).unwrap_or_default());\n\
             pub(crate) fn is_tried(name: &str) -> bool {{\n    *TRIED == name\n}}\n"
        ),
    )
}
