//! The commands.

mod administration;
mod hashes;
mod keys;
mod lists;
mod pubsub;
mod scripting;
mod session;
mod sorted_sets;
mod strings;

use std::collections::HashMap;
use std::sync::LazyLock;

use super::call::Caller;
use super::core::Core;
use super::reply::Answer;

type Run = fn(&mut Core, Caller, &[Vec<u8>]) -> Answer;

/// A command, and when it may be used.
#[derive(Debug)]
pub(super) struct Command {
    /// In lower case.
    pub(super) name: &'static str,
    /// The number of words, its name included; the smallest number if it is negative.
    arity: i32,
    pub(super) run: Run,
    pub(super) writes: bool,
    /// A full server refuses it.
    pub(super) needs_memory: bool,
    pub(super) in_script: bool,
    /// For clients of RESP2 that have subscribed to a channel.
    pub(super) in_subscription: bool,
    pub(super) has_subcommands: bool,
}

impl Command {
    const fn new(name: &'static str, arity: i32, run: Run) -> Command {
        Command {
            name,
            arity,
            run,
            writes: false,
            needs_memory: false,
            in_script: true,
            in_subscription: false,
            has_subcommands: false,
        }
    }

    const fn writes(self) -> Command {
        Command { writes: true, ..self }
    }

    /// It writes, and may need more memory.
    const fn grows(self) -> Command {
        Command { writes: true, needs_memory: true, ..self }
    }

    const fn not_in_script(self) -> Command {
        Command { in_script: false, ..self }
    }

    const fn in_subscription(self) -> Command {
        Command { in_subscription: true, ..self }
    }

    const fn with_subcommands(self) -> Command {
        Command { has_subcommands: true, ..self }
    }

    /// Whether it takes this number of words.
    pub(super) fn takes(&self, words: usize) -> bool {
        let words = words as i32;
        if self.arity < 0 { words >= -self.arity } else { words == self.arity }
    }
}

const TABLES: [&[Command]; 9] = [
    administration::COMMANDS,
    hashes::COMMANDS,
    keys::COMMANDS,
    lists::COMMANDS,
    pubsub::COMMANDS,
    scripting::COMMANDS,
    session::COMMANDS,
    sorted_sets::COMMANDS,
    strings::COMMANDS,
];

/// Finds a command by its name in any case.
pub(super) fn command(name: &[u8]) -> Option<&'static Command> {
    const LONGEST: usize = 32;
    static BY_NAME: LazyLock<HashMap<&[u8], &Command>> = LazyLock::new(|| {
        let all = TABLES.iter().flat_map(|table| table.iter());
        all.map(|command| (command.name.as_bytes(), command)).collect()
    });
    let mut lower = [0; LONGEST];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    BY_NAME.get(&*lower).copied()
}

/// Whether a word is this option, in any case.
fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}
