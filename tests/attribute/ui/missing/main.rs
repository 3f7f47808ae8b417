//! A package outside of the workspace that has the attribute, and not the runtime.

use std::path::Path;
use std::process::Command;

const MANIFEST: &str = include_str!("Cargo.toml.template");

#[test]
fn a_missing_runtime_is_one_error_with_the_line_for_the_manifest() {
    let said = check();
    let errors = said.lines().filter(|line| line.starts_with("error: "));
    // Cargo adds an error of its own.
    let errors: Vec<_> = errors.filter(|line| !line.contains("could not compile")).collect();
    let [error] = errors.as_slice() else { panic!("{said}") };
    assert!(error.contains("add `lockmacro-runtime = \"0.1\"` to its `[dependencies]`"), "{said}");
    assert!(said.contains("src/lib.rs:3:1"), "{said}");
}

/// Checks the package in a directory that is kept, and gives the compiler's messages.
fn check() -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let repository = here.ancestors().nth(3).expect("the package is in tests/attribute/ui");
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (missing, target) = (kept.join("missing"), kept.parent().expect("cargo's own directory"));
    let write = |name: &str, text: &str| {
        std::fs::create_dir_all(missing.join("src")).expect("made");
        std::fs::write(missing.join(name), text).expect("written");
    };
    write("Cargo.toml", &MANIFEST.replace("{repository}", &repository.to_string_lossy()));
    write("src/lib.rs", include_str!("lib.rs"));
    // With these versions nothing need be fetched.
    if let Ok(lock) = std::fs::read_to_string(repository.join("Cargo.lock")) {
        write("Cargo.lock", &lock);
    }
    let check = |more: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["check", "--quiet", "--color=never", "--manifest-path"]);
        cargo.arg(missing.join("Cargo.toml")).arg("--target-dir").arg(target).args(more);
        // Cargo sets these for the test's own package.
        cargo.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS");
        let output = cargo.output().expect("cargo starts");
        assert!(!output.status.success(), "the package has no runtime");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let offline = check(&["--offline"]);
    if offline.contains("src/lib.rs") { offline } else { check(&[]) }
}
