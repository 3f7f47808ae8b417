//! The tokens in what processes send. Once a release of a token was sent, a process never asks for
//! the lock with that token again: a late copy of the release would delete the lock of its body.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::slice;

use sha1_smol::Sha1;

use crate::mutants;
use crate::processes::scripts::Script;
use crate::processes::sim::sim;
use crate::server::Input;

type Bytes = Vec<u8>;

#[derive(Default)]
pub(crate) struct Tokens {
    /// The bytes of each link that are not yet a command.
    inputs: RefCell<BTreeMap<usize, Input>>,
    /// What the scripts that were sent do, by their hashes.
    scripts: RefCell<BTreeMap<Vec<u8>, Option<Script>>>,
    /// The tokens whose release was sent, by process and lock.
    released: RefCell<BTreeSet<(usize, Bytes, Bytes)>>,
}

impl Tokens {
    /// A process writes to a server.
    pub(crate) fn sent(&self, link: usize, process: usize, bytes: &[u8]) {
        // Each attempt at several nodes has a token of its own, and a slow vote of one that was
        // withdrawn may go on: no grant is made of it.
        let is_redlock = sim().network.voters().len() > 1;
        if is_redlock || mutants::expected().is_some_and(|oracle| oracle != "token") {
            return;
        }
        let mut inputs = self.inputs.borrow_mut();
        let input = inputs.entry(link).or_default();
        input.add(bytes);
        while let Ok(Some(command)) = input.next() {
            self.command(process, &command);
        }
    }

    fn command(&self, process: usize, command: &[Vec<u8>]) {
        let (script, keys, arguments) = match command {
            [name, key, token, ..] if name == b"SET" => {
                (Script::Acquire, slice::from_ref(key), slice::from_ref(token))
            }
            [name, script, count, rest @ ..] if name.starts_with(b"EVAL") => {
                let Some(script) = self.script(name == b"EVAL", script) else { return };
                let count = str::from_utf8(count).ok().and_then(|count| count.parse().ok());
                let Some((keys, arguments)) = rest.split_at_checked(count.unwrap_or(0)) else {
                    return;
                };
                (script, keys, arguments)
            }
            _ => return,
        };
        let released = &mut *self.released.borrow_mut();
        let locks = keys.iter().filter(|key| !key.starts_with(b"lm1:"));
        for (nth, lock) in locks.enumerate() {
            let nth = if script == Script::ReleaseUncontended { nth } else { 0 };
            let of = (process, lock.clone(), arguments[nth].clone());
            match script {
                Script::Release | Script::ReleaseMigrating | Script::ReleaseUncontended => {
                    released.insert(of);
                }
                Script::Acquire | Script::AcquireAll if released.contains(&of) => {
                    let [lock, token] = [&of.1, &of.2].map(|text| String::from_utf8_lossy(text));
                    let text = format_args!("p{process} asks for {lock} again with {token}");
                    sim().fails("token", text);
                }
                _ => {}
            }
        }
    }

    /// What a script does. Its text is sent before its hash is of any use.
    fn script(&self, is_text: bool, script: &[u8]) -> Option<Script> {
        let scripts = &mut *self.scripts.borrow_mut();
        if !is_text {
            return *scripts.get(script)?;
        }
        let hash = Sha1::from(script).digest().to_string().into_bytes();
        *scripts.entry(hash).or_insert_with(|| Script::of(script))
    }
}
