//! `cargo test` in the root runs `sh tests/run quick`. The tests are in other packages, with
//! features that `cargo run --example` would otherwise build, too.

use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    if cfg!(feature = "with-all") {
        return ExitCode::SUCCESS;
    }
    let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../../run");
    let status = Command::new("sh").args([run, "quick"]).args(std::env::args_os().nth(1)).status();
    if !status.expect("a shell").success() {
        return ExitCode::FAILURE;
    }
    println!("\nThese were the tests that need no server. `sh tests/run` runs the others, too.");
    ExitCode::SUCCESS
}
