//! Scripts.

use crate::mutants;
use sha1_smol::Sha1;

use super::super::call::Caller;
use super::super::core::Core;
use super::super::lua;
use super::super::number::integer;
use super::super::reply::{Answer, Fault, Reply};
use super::{Command, is};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("eval", -3, eval).not_in_script(),
    Command::new("evalsha", -3, evalsha).not_in_script(),
    Command::new("script", -2, script).not_in_script().with_subcommands(),
];

fn eval(core: &mut Core, caller: Caller, words: &[Vec<u8>]) -> Answer {
    let count = count_of_keys(words)?;
    let hash = core.load(&words[1])?;
    run(core, caller, &hash, count, words)
}

fn evalsha(core: &mut Core, caller: Caller, words: &[Vec<u8>]) -> Answer {
    let count = count_of_keys(words)?;
    let hash = String::from_utf8_lossy(&words[1]).to_lowercase();
    if !core.scripts.contains_key(&hash) {
        return Err(Fault::new("NOSCRIPT No matching script. Please use EVAL."));
    }
    run(core, caller, &hash, count, words)
}

fn count_of_keys(words: &[Vec<u8>]) -> Result<usize, Fault> {
    let count = integer(&words[2])?;
    if count > words.len() as i64 - 3 {
        return Err(Fault::new("ERR Number of keys can't be greater than number of args"));
    }
    usize::try_from(count).map_err(|_| Fault::new("ERR Number of keys can't be negative"))
}

fn run(core: &mut Core, caller: Caller, hash: &str, keys: usize, words: &[Vec<u8>]) -> Answer {
    let text = core.scripts.get(hash).cloned().unwrap_or_else(|| [].into());
    let (keys, arguments) = words[3..].split_at(keys);
    lua::run(core, caller, (hash, &text), keys, arguments)
}

impl Core {
    /// Keeps a script if it compiles; returns its hash.
    fn load(&mut self, text: &[u8]) -> Result<String, Fault> {
        let hash = Sha1::from(text).digest().to_string();
        if !self.scripts.contains_key(&hash) {
            let text = mutants::changed(text);
            lua::check(&hash, &text)?;
            self.scripts.insert(hash.clone(), text.as_ref().into());
        }
        Ok(hash)
    }
}

fn script(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    match (&words[1], &words[2..]) {
        (sub, [text]) if is(sub, "load") => Ok(Reply::bulk(core.load(text)?)),
        (sub, []) if is(sub, "flush") => {
            core.scripts.clear();
            Ok(Reply::OK)
        }
        (sub, _) => Err(core.unknown_subcommand("script", sub)),
    }
}
