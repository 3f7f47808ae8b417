//! The command line.

use std::iter;
use std::sync::LazyLock;

use clap::builder::PossibleValue;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use lockmacro_runtime::defer::JobState;
use lockmacro_runtime::inspect::Use;

/// Looks at the locks and deferred calls on a Redis server.
#[derive(Parser)]
#[command(name = "lockmacro", version)]
pub struct Args {
    /// The server: `redis://user:password@host:port/db`, `rediss://…`, `redis-cluster://…` or
    /// `redis-sentinel://…`. In the environment others cannot read a password.
    #[arg(long, env = "REDIS_URL", hide_env_values = true, global = true)]
    pub url: Option<String>,
    /// Writes one JSON document instead of a table.
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// The locks that are held.
    Locks {
        /// Which keys, with `*`, `?` and `[…]` as Redis has them.
        #[arg(default_value = "*")]
        pattern: String,
        /// Shows foreign strings, too. Not every one of them is a lock.
        #[arg(long)]
        all: bool,
        /// How many at most.
        #[arg(long, default_value_t = 1_000)]
        most: usize,
    },
    /// Who waits for a lock, the next one first.
    Queue {
        /// The lock's key.
        key: String,
        /// How many at most, up to 1,000.
        #[arg(long, default_value_t = 100)]
        most: usize,
    },
    /// The deferred calls: of each function how many, or those of one function.
    Jobs(Jobs),
    /// Prints the rights that a user needs, as a command for the server. Asks no server.
    Acl {
        /// Which keys, with `*`, `?` and `[…]` as Redis has them.
        pattern: String,
        /// What the locks are used for.
        #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Feature(Option::Some(Use::Wait))])]
        features: Vec<Feature>,
        /// What the user is called.
        #[arg(long, default_value = "shop")]
        user: String,
    },
    /// Takes a lock away from its holder, and gives it to who waits longest. The holder's body goes on
    /// until its next renewal, or its end.
    Release {
        /// The lock's key.
        key: String,
        /// Says that it is meant.
        #[arg(long)]
        force: bool,
        /// Does not ask.
        #[arg(long)]
        yes: bool,
    },
}

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Jobs {
    #[command(subcommand)]
    pub amend: Option<Amend>,
    /// The function's name, as calls are stored under.
    pub function: Option<String>,
    /// Which of its calls.
    #[arg(long, value_enum, default_value_t = State::Waiting, requires = "function")]
    pub state: State,
    /// How many to pass over.
    #[arg(long, default_value_t = 0, requires = "function")]
    pub first: usize,
    /// How many at most, up to 1,000.
    #[arg(long, default_value_t = 100, requires = "function")]
    pub most: usize,
}

#[derive(Subcommand)]
pub enum Amend {
    /// Makes dead letters, or calls that wait, due at once, with all their attempts.
    Retry(Some),
    /// Removes dead letters, or calls that wait.
    Remove(Some),
}

/// Some calls of a function.
#[derive(clap::Args)]
pub struct Some {
    /// The function's name, as calls are stored under.
    pub function: String,
    /// Which of its calls, as `jobs FUNCTION` shows them.
    #[arg(required_unless_present = "all_dead", conflicts_with = "all_dead")]
    pub ids: Vec<String>,
    /// All its dead letters.
    #[arg(long)]
    pub all_dead: bool,
    /// Does not ask.
    #[arg(long, requires = "all_dead")]
    pub yes: bool,
}

/// What the locks are used for, by the library's own names; or nothing of that.
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
            None => ("none", "Locks are asked for once."),
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
    /// Checks what the parser does not, and gives the server.
    pub fn check(&self) -> Result<&str, clap::Error> {
        if let Command::Release { force: false, .. } = self.command {
            return Err(missing("this takes the lock away from its holder: say so by `--force`"));
        }
        let url = self.url.as_deref().filter(|url| !url.is_empty());
        let none = "name the server: `--url URL`, or REDIS_URL in the environment";
        url.ok_or_else(|| missing(none))
    }
}

pub fn missing(what: &str) -> clap::Error {
    Args::command().error(ErrorKind::MissingRequiredArgument, what)
}
