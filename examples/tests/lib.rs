//! Runs the code blocks of documents that belong to no crate with the runtime, and builds the
//! programs of the examples.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles and runs the programs of the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// The same for the attribute's documentation. Its own crate would have to build the runtime once
/// more for them, as the dependencies of a macro crate are built separately.
#[cfg(doctest)]
#[doc = include_str!("../../lockmacro/src/attribute.md")]
pub struct Attribute;

/// An example's program as it is now: cargo names no path for examples, and builds them for some of
/// its ways to run tests only.
pub fn program(example: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().and_then(Path::parent).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // The same selection as in `tests/run`, so that nothing is built twice.
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--workspace", "--all-features", "--example", example]);
    build.arg("--target-dir").arg(built.parent().unwrap());
    build.args(built.ends_with("release").then_some("--release"));
    // Cargo sets these for a test. The build script of `ring` would run again where they differ, and
    // all that depends on it would be built anew, here and by the next run of the tests.
    for (name, _) in std::env::vars_os() {
        let is_of = |prefix| name.to_str().is_some_and(|name| name.starts_with(prefix));
        if is_of("CARGO_MANIFEST_") || is_of("CARGO_PKG_") {
            build.env_remove(name);
        }
    }
    let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
    assert!(status.success(), "the example does not compile");
    built.join("examples").join(example).with_extension(std::env::consts::EXE_EXTENSION)
}
