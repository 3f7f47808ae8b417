//! What a server has served, for those who watch it.

use std::sync::Arc;

use super::connection::Protocol;
use super::core::Core;
use super::keyspace::Value;
use super::reply::Reply;

/// A command that names locks, and what it did to them.
#[derive(Debug, Clone)]
pub struct Served {
    /// The command and its arguments.
    pub request: Vec<Vec<u8>>,
    /// The script that it ran.
    pub script: Option<Arc<[u8]>>,
    /// The reply, as RESP 2 has it.
    pub reply: Vec<u8>,
    /// The locks in the order of their names in the command.
    pub locks: Vec<(String, Lock, Lock)>,
}

/// A lock at a server: its value, and the tokens in its queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lock {
    /// The value of its key.
    pub held: Option<String>,
    /// The queue, in order.
    pub queue: Vec<String>,
}

impl Core {
    pub(super) fn lock(&self, key: &str) -> Lock {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let held = self.keyspace.entry(key.as_bytes()).map(|entry| match &entry.value {
            Value::String(value) => text(value),
            _ => String::new(),
        });
        let queue = self.keyspace.entry(format!("lm1:wq:{{{key}}}").as_bytes());
        let queue = match queue.map(|entry| &entry.value) {
            Some(Value::SortedSet(queue)) => queue.iter().map(|(token, _)| text(token)).collect(),
            _ => Vec::new(),
        };
        Lock { held, queue }
    }

    /// The script of a request, if it is known.
    pub(super) fn script_of(&self, request: &[Vec<u8>]) -> Option<Arc<[u8]>> {
        match request {
            [name, text, ..] if name.eq_ignore_ascii_case(b"eval") => Some(text[..].into()),
            [name, hash, ..] if name.eq_ignore_ascii_case(b"evalsha") => {
                self.scripts.get(&String::from_utf8_lossy(hash).to_lowercase()).cloned()
            }
            _ => None,
        }
    }
}

/// The names of locks in a request: those that are no companion keys.
pub(super) fn locks_of(request: &[Vec<u8>]) -> Vec<String> {
    let name = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
    let keys = match request {
        [name, _, count, rest @ ..]
            if name.eq_ignore_ascii_case(b"eval") || name.eq_ignore_ascii_case(b"evalsha") =>
        {
            let count = std::str::from_utf8(count).ok().and_then(|count| count.parse().ok());
            &rest[..count.unwrap_or(0).min(rest.len())]
        }
        [name, key, ..] if name.eq_ignore_ascii_case(b"set") => std::slice::from_ref(key),
        [name, keys @ ..] if name.eq_ignore_ascii_case(b"del") => keys,
        _ => &[],
    };
    keys.iter().filter(|key| !key.starts_with(b"lm1:")).map(name).collect()
}

pub(super) fn written(reply: &Reply) -> Vec<u8> {
    let mut bytes = Vec::new();
    reply.write(&mut bytes, Protocol::Resp2);
    bytes
}
