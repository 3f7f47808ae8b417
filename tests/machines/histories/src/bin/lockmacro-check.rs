//! Judges histories of a lock: `lockmacro-check PATH...`, each a file or a directory of files,
//! which are taken together as one history. With `--edn` or `--json` it prints the history instead.
//!
//! It ends with 0 when the history contradicts nothing, with 1 when it does, and with 2 when it
//! cannot be read.

use std::io::Write as _;
use std::process::ExitCode;

use lockmacro_histories::{History, judge};

const USAGE: &str = "lockmacro-check [--edn | --json] PATH...";

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let shown = arguments.extract_if(.., |word| word.starts_with("--")).next();
    if arguments.is_empty() {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    match run(shown.as_deref(), &arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("lockmacro-check: {why}");
            ExitCode::from(2)
        }
    }
}

fn run(shown: Option<&str>, paths: &[String]) -> Result<bool, String> {
    let history = History::load(paths).map_err(|unreadable| unreadable.to_string())?;
    let (text, is_valid) = match shown {
        Some("--edn") => (history.to_edn(), true),
        Some("--json") => (history.to_json_lines(), true),
        Some(other) => return Err(format!("{other} is not known: {USAGE}")),
        None => {
            let verdict = judge(&history)?;
            (verdict.to_string(), verdict.is_valid())
        }
    };
    // A reader that has gone needs no text.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(is_valid)
}
