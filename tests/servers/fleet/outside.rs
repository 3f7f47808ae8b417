//! A crate outside of the workspace, which knows nothing but the paths of the two crates.

use std::path::{Path, PathBuf};
use std::process::Command;

use lockmacro_tests::Server;

const MANIFEST: &str = include_str!("outside/Cargo.toml.template");

#[test]
fn a_crate_outside_of_the_workspace_needs_nothing_but_the_paths_of_the_two_crates() {
    let program = build();
    let server = Server::start();
    let ran = Command::new(program).arg(server.url()).output().expect("the program starts");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
    let functions = said.lines().filter(|line| line.ends_with("locked and released")).count();
    assert_eq!(functions, 14, "{said}");
    assert_eq!(server.admin().keys(), Vec::<String>::new(), "left behind");
}

/// Builds the crate in a directory that is kept, beside what the workspace has built.
fn build() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let repository = here.parent().expect("the package is inside of the workspace");
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (outside, target) = (kept.join("outside"), kept.parent().expect("cargo's own directory"));
    let write = |name: &str, text: &str| {
        let file = outside.join(name);
        std::fs::create_dir_all(file.parent().expect("a directory")).expect("made");
        // Left alone when nothing changed, for cargo looks at the time of the last change.
        if std::fs::read_to_string(&file).ok().as_deref() != Some(text) {
            std::fs::write(&file, text).expect("written");
        }
    };
    write("Cargo.toml", &MANIFEST.replace("{repository}", &repository.to_string_lossy()));
    write("src/main.rs", include_str!("outside/main.rs"));
    write("src/shapes.rs", include_str!("outside/shapes.rs"));
    // The versions that are here already: then nothing need be fetched.
    if !outside.join("Cargo.lock").exists()
        && let Ok(lock) = std::fs::read_to_string(repository.join("Cargo.lock"))
    {
        write("Cargo.lock", &lock);
    }
    let offline = cargo_build(&outside, target, &["--offline"]);
    if let Err(first) = offline {
        let online = cargo_build(&outside, target, &[]);
        online.unwrap_or_else(|second| panic!("offline: {first}\nonline: {second}"));
    }
    target.join("debug/outside")
}

fn cargo_build(outside: &Path, target: &Path, more: &[&str]) -> Result<(), String> {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--manifest-path"])
        .arg(outside.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .args(more)
        // The variables that cargo sets for a test are not meant for another package.
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo starts");
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
