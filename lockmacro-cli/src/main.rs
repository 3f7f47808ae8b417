//! The tool `lockmacro`: inspects and changes locks and jobs from a terminal.

mod acl;
mod args;
mod doctor;
mod jobs;
mod locks;
mod process;
mod run;
mod schema;
mod show;
mod why;

use std::error::Error;
use std::io::{BufRead, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use clap::error::ErrorKind as Misuse;
use lockmacro_runtime::{Lock, LockError, LockManager};
use serde_json::json;

use self::args::{Args, Command, Postgres};

/// Exit code of a command that failed, or did a part only.
const FAILED: u8 = 1;
/// Exit code of wrong arguments.
const USAGE: u8 = 2;
/// The setting of an error about the functions in a PostgreSQL database.
const SCHEMA: &str = "schema";

/// The output of a command, and whether the command did all that it was asked for.
struct Report {
    text: String,
    done: bool,
}

/// The error of a command.
type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let args = match Args::read() {
        Ok(args) => args,
        Err(misuse) => return refuse(&misuse),
    };
    let json = args.json;
    match execute(args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => match error.downcast_ref::<clap::Error>() {
            Some(misuse) => refuse(misuse),
            None => fail(&*error, json),
        },
    }
}

fn execute(args: Args) -> Result<u8, Failure> {
    if let Command::Acl { pattern, features, user } = &args.command {
        return finish(acl::print(args.url.as_deref(), pattern, features, user, args.json)?);
    }
    if let Command::Postgres(Postgres::Print { schema }) = &args.command {
        return finish(schema::print(schema, args.json)?);
    }
    let url = args.check()?.to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let Command::Run(mut options) = args.command {
        let key = options.take_key()?;
        return runtime.block_on(run::run(&url, key, options, args.json));
    }
    finish(runtime.block_on(async {
        if let Command::Postgres(_) = args.command {
            return schema::install(&url, args.json).await;
        }
        if let Command::Doctor { key } = args.command {
            return doctor::examine(&url, key, args.json).await;
        }
        if let Command::Queue { key, .. } | Command::Why { key } | Command::Release { key, .. } =
            &args.command
        {
            check(Lock::new(&**key)).await?;
        }
        let manager = LockManager::connect(&url).await?;
        match args.command {
            Command::Locks { pattern, all, holders, limit } => {
                locks::list(&manager, &pattern, all, holders, limit, args.json).await
            }
            Command::Queue { key, limit } => locks::queue(&manager, key, limit, args.json).await,
            Command::Why { key } => why::explain(&manager, &url, &key, args.json).await,
            Command::Release { key, yes, .. } => {
                locks::release(&manager, key, yes, args.json).await
            }
            Command::Jobs(jobs) => jobs::run(&manager, jobs, args.json).await,
            // Above.
            Command::Acl { .. }
            | Command::Doctor { .. }
            | Command::Postgres(_)
            | Command::Run(_) => Err("no server is needed".into()),
        }
    })?)
}

/// Refuses a lock that no server would take: one in memory refuses the same, without a connection.
async fn check(lock: Lock) -> Result<(), LockError> {
    lock.manager(&LockManager::isolated_memory()).acquire().await?.release().await
}

/// Writes a report, and returns the exit code.
fn finish(Report { text, done }: Report) -> Result<u8, Failure> {
    write(&text)?;
    Ok(if done { 0 } else { FAILED })
}

/// Asks the person at the terminal to confirm by typing `name`.
fn is_confirmed(question: &str, name: &str) -> Result<bool, Failure> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(args::missing("there is no terminal to confirm on: add `--yes`").into());
    }
    let mut prompt = std::io::stderr().lock();
    write!(prompt, "{question}: ")?;
    prompt.flush()?;
    let mut typed = String::new();
    input.lock().read_line(&mut typed)?;
    Ok(typed.trim_end_matches(['\r', '\n']) == name)
}

/// Prints the help, the version, or what is wrong with the arguments.
fn refuse(misuse: &clap::Error) -> ExitCode {
    let text = misuse.render().to_string();
    if matches!(misuse.kind(), Misuse::DisplayHelp | Misuse::DisplayVersion) {
        return write(&text).map_or_else(|error| fail(&error, false), |()| ExitCode::SUCCESS);
    }
    // There is no other place to report a failure of this.
    let _ = std::io::stderr().write_all(show::without_passwords(&text).as_bytes());
    ExitCode::from(USAGE)
}

fn fail(error: &(dyn Error + 'static), json: bool) -> ExitCode {
    let (text, code) = explain(error);
    if !json || write(&show::document(&json!({ "error": text }))).is_err() {
        complain(&text);
    }
    ExitCode::from(code)
}

/// What an error says, and its exit code.
fn explain(error: &(dyn Error + 'static)) -> (String, u8) {
    let code = match error.downcast_ref() {
        // The schema is that of the server.
        Some(LockError::InvalidSetting { setting, .. }) if *setting != SCHEMA => USAGE,
        Some(LockError::InvalidKey { .. }) => USAGE,
        _ => FAILED,
    };
    (with_own_features(error.to_string()), code)
}

/// Names the tool's feature in an error about a missing one, which has the same name here.
fn with_own_features(text: String) -> String {
    match text.strip_suffix("` of lockmacro-runtime") {
        Some(text) => format!("{text}` of {}", env!("CARGO_PKG_NAME")),
        None => text,
    }
}

/// Writes a line to stderr.
fn complain(text: &str) {
    let text = format!("lockmacro: {}\n", show::plain(text));
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Writes a report. A reader that has closed the pipe is no failure.
fn write(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_a_feature_of_the_tool_and_leaves_the_words_of_a_user() {
        let named = |text: &str| with_own_features(text.to_owned());
        let text = "TLS needs the feature `tls` of lockmacro-";
        assert_eq!(named(&format!("{text}runtime")), format!("{text}cli"));
        let key = "`a` of lockmacro-runtime` is not a lock";
        assert_eq!(named(key), key);
    }
}
