//! The command line.

use std::ffi::OsString;
use std::iter;
use std::sync::LazyLock;
use std::time::Duration;

use clap::builder::PossibleValue;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use lockmacro_runtime::defer::JobState;
use lockmacro_runtime::inspect::Use;

/// Inspects the locks and deferred calls on a Redis server or in a PostgreSQL database.
#[derive(Parser)]
#[command(name = "lockmacro", version)]
pub struct Args {
    /// The server: `redis://user:password@host:port/db`, `rediss://…`, `redis-cluster://…`,
    /// `redis-sentinel://…` or `postgres://user:password@host:port/database`. Other users can read
    /// a password in the arguments, but not one in the environment.
    #[arg(long, env = "REDIS_URL", hide_env_values = true, global = true)]
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
        #[arg(long, default_value_t = 1_000)]
        limit: usize,
    },
    /// The holder and the waiters of a lock. The next waiter is first, and has rank 0.
    Queue {
        /// The lock's key.
        key: String,
        /// Largest number of waiters, up to 1,000.
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Examines the servers: what is wrong with them, and what mends it. Changes nothing.
    Doctor {
        /// A key to check the rights on, for a user who may use some keys only.
        key: Option<String>,
    },
    /// Explains why a lock is busy: its holder, since when, its waiters, and what to do.
    Why {
        /// The lock's key.
        key: String,
    },
    /// The deferred calls: the number of calls of each function, or the calls of one function.
    Jobs(Jobs),
    /// Prints the rights that a user needs, as a command for the server. Connects to no server.
    Acl {
        /// A pattern of keys, with the `*`, `?` and `[…]` of Redis.
        pattern: String,
        /// The features that the program uses.
        #[arg(
            long,
            value_enum,
            value_delimiter = ',',
            default_values_t = [Feature(Option::Some(Use::Wait))],
        )]
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
pub struct Run {
    /// The lock's key.
    pub key: String,
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
    /// The name under which the function's calls are stored.
    pub function: Option<String>,
    /// The state of the calls.
    #[arg(long, value_enum, default_value_t = State::Waiting, requires = "function")]
    pub state: State,
    /// Number of calls to skip.
    #[arg(long, default_value_t = 0, requires = "function")]
    pub first: usize,
    /// Largest number of calls, up to 1,000.
    #[arg(long, default_value_t = 100, requires = "function")]
    pub limit: usize,
}

#[derive(Subcommand)]
pub enum Amend {
    /// Makes dead letters or waiting calls due at once, with all their attempts.
    Retry(Some),
    /// Removes dead letters or waiting calls.
    Remove(Some),
}

/// Some calls of a function.
#[derive(clap::Args)]
pub struct Some {
    /// The name under which the function's calls are stored.
    pub function: String,
    /// The ids of the calls, as `jobs FUNCTION` shows them.
    #[arg(required_unless_present = "all_dead", conflicts_with = "all_dead")]
    pub ids: Vec<String>,
    /// All dead letters of the function.
    #[arg(long)]
    pub all_dead: bool,
    /// Does not ask for a confirmation.
    #[arg(long, requires = "all_dead")]
    pub yes: bool,
}

/// A feature that needs rights of its own, or `none`.
#[derive(Clone, Copy)]
pub struct Feature(pub Option<Use>);

impl ValueEnum for Feature {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<Feature>> = LazyLock::new(|| {
            let uses = Use::ALL.iter().map(|used| Feature(Option::Some(*used)));
            iter::once(Feature(None)).chain(uses).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, about) = match self.0 {
            None => ("none", "Locks that do not wait."),
            Option::Some(used) => (used.name(), used.about()),
        };
        Option::Some(PossibleValue::new(name).help(about.trim_end_matches('.')))
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub enum State {
    Waiting,
    Running,
    Dead,
}

impl From<State> for JobState {
    fn from(state: State) -> Self {
        match state {
            State::Waiting => JobState::Waiting,
            State::Running => JobState::Running,
            State::Dead => JobState::Dead,
        }
    }
}

impl Args {
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
        let none = "name the server: `--url URL`, or REDIS_URL in the environment";
        url.ok_or_else(|| missing(none))
    }
}

pub fn missing(what: &str) -> clap::Error {
    Args::command().error(ErrorKind::MissingRequiredArgument, what)
}
