//! The command line.

use std::env;
use std::ffi::OsString;
use std::iter;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use lockmacro_runtime::defer::JobState;
use lockmacro_runtime::inspect::Use;

use crate::show::shell;

pub const STATES: [JobState; 3] = [JobState::Waiting, JobState::Running, JobState::Dead];
/// The variables that may name the server, of which the first one counts that does.
const VARIABLES: [&str; 3] = ["LOCKMACRO_URL", "REDIS_URL", "DATABASE_URL"];
/// A login in a URL has one of these.
const OF_LOGINS: [&str; 3] = ["@", "pass", "user="];

/// Inspects the locks and jobs on a Redis server or in a PostgreSQL database.
#[derive(Parser)]
#[command(name = "lockmacro", version, max_term_width = 100)]
pub struct Args {
    /// The server, by default LOCKMACRO_URL, REDIS_URL or DATABASE_URL of the environment
    ///
    ///   redis://[user:password@]host[:port][/db]
    ///   redis-cluster://host[:port],…
    ///   redis-sentinel://host[:port],…/name
    ///   redlock://host[:port],host[:port],host[:port]
    ///   postgres://[user:password@]host[:port]/database
    ///
    /// rediss://, rediss-cluster://, rediss-sentinel://, redlocks:// and
    /// postgres://…?sslmode=require are encrypted. Other users of the machine
    /// can read a password in the arguments, but not one in the environment.
    /// A DATABASE_URL of another kind of database is ignored.
    #[arg(long, global = true, verbatim_doc_comment)]
    pub url: Option<String>,
    /// Writes one JSON document instead of a table. `run` writes it as the last line on stderr.
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// The locks that are held.
    Locks {
        /// A pattern of keys, with the `*`, `?` and `[…]` of Redis.
        #[arg(default_value = "*")]
        pattern: String,
        /// Shows the strings of other programs, too, which may be no locks.
        #[arg(long)]
        all: bool,
        /// Shows each holder of a lock that several share.
        #[arg(long)]
        holders: bool,
        /// Largest number of locks.
        #[arg(long, default_value_t = 1_000, value_parser = Limit::new().range(1..))]
        limit: usize,
    },
    /// The holder and the waiters of a lock. The next waiter is first, and has rank 0.
    Queue {
        /// The lock's key.
        key: String,
        /// Largest number of waiters, up to 1,000.
        #[arg(long, default_value_t = 100, value_parser = Limit::new().range(1..=1_000))]
        limit: usize,
    },
    /// Examines the servers: what is wrong with them, and what fixes it. Changes nothing.
    Doctor {
        /// A key to check the rights on, for a user who may use some keys only.
        key: Option<String>,
    },
    /// Explains why a lock is busy: its holder, since when, its waiters, and what to do.
    Why {
        /// The lock's key.
        key: String,
    },
    /// The jobs: the number of jobs of each function, or the jobs of one function.
    Jobs(Jobs),
    /// Prints the rights that a user needs, as a command for the server. Connects to no server.
    Acl {
        /// A pattern of keys, with the `*`, `?` and `[…]` of Redis.
        pattern: String,
        /// The features that the program uses.
        #[arg(long, value_parser = feature(), value_delimiter = ',', default_value = "wait")]
        features: Vec<Feature>,
        /// The user's name.
        #[arg(long, default_value = "shop")]
        user: String,
    },
    /// The schema that locks in a PostgreSQL database need.
    #[command(subcommand)]
    Postgres(Postgres),
    /// Releases a lock in place of its holder, and hands it off to the first waiter. The holder's
    /// body goes on until its next renewal, or its end.
    Release {
        /// The lock's key.
        key: String,
        /// Confirms that the lock is taken away from its holder.
        #[arg(long)]
        force: bool,
        /// Does not ask for a confirmation.
        #[arg(long)]
        yes: bool,
    },
    /// Runs a command under a lock, which is renewed until the command ends, and then released.
    ///
    /// The exit status is that of the command, or 128 and the number of the signal that has killed
    /// it; 75 when somebody else holds the lock; 76 when the lock was lost before the command
    /// ended; 127 and 126 when the command cannot be started; 1 for other failures, and 2 for
    /// misuse. The command gets LOCKMACRO_KEY and LOCKMACRO_FENCE in its environment.
    Run(Run),
}

#[derive(clap::Args)]
#[command(override_usage = "lockmacro run [OPTIONS] KEY -- COMMAND...")]
pub struct Run {
    /// The lock's key. One that begins with `-` comes after `--`: `run -- -k -- COMMAND`.
    pub key: Option<String>,
    /// The lease, which is renewed after a third of it. After the death of the tool the lock is
    /// free within this time.
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    pub ttl: Duration,
    /// How long to wait for the lock, or `forever`. Without this the tool does not wait.
    #[arg(long, default_value = "0s", hide_default_value = true, value_parser = wait)]
    pub wait: Duration,
    /// Shares the lock with other shared holders.
    #[arg(long, conflicts_with = "permits")]
    pub shared: bool,
    /// Shares the lock with at most N holders, this one included.
    #[arg(long, value_name = "N")]
    pub permits: Option<u32>,
    /// The holder's name for others, by default the host and the tool's process id.
    #[arg(long = "as", value_name = "NAME")]
    pub label: Option<String>,
    /// The command, and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

fn wait(text: &str) -> Result<Duration, humantime::DurationError> {
    match text {
        "forever" => Ok(Duration::MAX),
        _ => humantime::parse_duration(text),
    }
}

#[derive(Subcommand)]
pub enum Postgres {
    /// Prints the SQL that makes the schema. Connects to no server.
    Print {
        /// The name of the schema.
        #[arg(long, default_value = "lm1")]
        schema: String,
    },
    /// Makes the schema or upgrades it, and prints the rights that a user of the locks needs.
    Install {
        /// The server, by default that of `--url`; with `?schema=NAME` for another schema than
        /// `lm1`.
        #[arg(value_name = "URL")]
        server: Option<String>,
    },
}

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Jobs {
    #[command(subcommand)]
    pub amend: Option<Amend>,
    /// The name under which the function's jobs are stored.
    pub function: Option<String>,
    /// The state of the jobs: `waiting`, `running` or `dead`.
    #[arg(long, default_value = "waiting", value_parser = state, requires = "function")]
    pub state: JobState,
    /// Number of jobs to skip.
    #[arg(long, default_value_t = 0, requires = "function")]
    pub first: usize,
    /// Largest number of jobs, up to 1,000.
    #[arg(long, default_value_t = 100, requires = "function")]
    pub limit: usize,
}

#[derive(Subcommand)]
pub enum Amend {
    /// Makes dead jobs or waiting jobs due at once, with all their attempts.
    Retry(Some),
    /// Removes dead jobs or waiting jobs.
    Remove(Some),
}

/// Some jobs of a function.
#[derive(clap::Args)]
pub struct Some {
    /// The name under which the function's jobs are stored.
    pub function: String,
    /// The ids of the jobs, as `jobs FUNCTION` shows them.
    #[arg(required_unless_present = "all_dead", conflicts_with = "all_dead")]
    pub ids: Vec<String>,
    /// All dead jobs of the function.
    #[arg(long)]
    pub all_dead: bool,
    /// Does not ask for a confirmation.
    #[arg(long, requires = "all_dead")]
    pub yes: bool,
}

type Limit = RangedU64ValueParser<usize>;

/// A feature that needs rights of its own, or `none`.
#[derive(Clone, Copy)]
pub struct Feature(pub Option<Use>);

fn feature() -> impl TypedValueParser<Value = Feature> {
    let none = ("none", "Locks that do not wait");
    let uses = Use::ALL.iter().map(|used| (used.name(), used.about().trim_end_matches('.')));
    let all = iter::once(none).chain(uses);
    let values = all.map(|(name, about)| PossibleValue::new(name).help(about));
    PossibleValuesParser::new(values)
        .map(|name| Feature(Use::ALL.iter().copied().find(|used| used.name() == name)))
}

fn state(text: &str) -> Result<JobState, &'static str> {
    let named = STATES.into_iter().find(|state| state.to_string() == text);
    named.ok_or("write `waiting`, `running` or `dead`")
}

impl Run {
    /// Takes out the key, which is the first word after `--` in `run -- -KEY -- COMMAND`.
    pub fn take_key(&mut self) -> Result<String, clap::Error> {
        let mut key = self.key.take();
        if let (None, [first, dashes, _, ..]) = (&key, &*self.command)
            && dashes == "--"
        {
            key = first.to_str().filter(|first| first.starts_with('-')).map(str::to_owned);
            self.command.drain(..2);
        }
        let none = || missing("name the key: `lockmacro run KEY -- COMMAND`");
        key.filter(|key| !key.is_empty()).ok_or_else(none)
    }
}

impl Args {
    /// Parses the command line, and looks for a server in the environment.
    pub fn read() -> Result<Self, clap::Error> {
        let mut args = Self::try_parse()?;
        args.url = args.url.or_else(url_of_environment);
        Ok(args)
    }

    /// Checks what the parser cannot check. Returns the URL of the server.
    pub fn check(&self) -> Result<&str, clap::Error> {
        if let Command::Release { force: false, .. } = self.command {
            return Err(missing("this takes the lock away from its holder: add `--force`"));
        }
        let url = match &self.command {
            Command::Postgres(Postgres::Install { server: Option::Some(server) }) => server,
            _ => self.url.as_deref().unwrap_or_default(),
        };
        let url = Option::Some(url).filter(|url| !url.is_empty());
        if matches!(self.command, Command::Run(_))
            && url.is_some_and(|url| url.starts_with("memory:"))
        {
            return Err(missing("`memory://` excludes no other process: name a server"));
        }
        let none = format!("name the server: `--url URL`, or {}", VARIABLES.join(", "));
        url.ok_or_else(|| missing(&none))
    }
}

/// The server that the environment names.
fn url_of_environment() -> Option<String> {
    let url = |name: &&str| {
        let is_other = |url: &str| *name == "DATABASE_URL" && !url.starts_with("postgres");
        env::var(name).ok().filter(|url| !url.is_empty() && !is_other(url))
    };
    VARIABLES.iter().find_map(url)
}

/// A command line of the tool, for a shell, and what to say after it. The URL is not in it where
/// the environment has the same one, or where a password may be in it.
pub fn line(url: Option<&str>, words: &str) -> (String, &'static str) {
    match url {
        None => (format!("lockmacro {words}"), ""),
        Option::Some(url) if OF_LOGINS.iter().any(|it| url.contains(it)) => {
            (format!("lockmacro --url … {words}"), ", with the URL in place of `…`")
        }
        Option::Some(url) => (format!("lockmacro --url {} {words}", shell(url)), ""),
    }
}

/// The URL, where the environment has another one.
pub fn url_of_arguments(url: &str) -> Option<&str> {
    Option::Some(url).filter(|url| url_of_environment().as_deref() != Option::Some(url))
}

pub fn missing(what: &str) -> clap::Error {
    Args::command().error(ErrorKind::MissingRequiredArgument, what)
}
