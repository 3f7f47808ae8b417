//! What the user may do on a server, asked when a manager connects: a lock that can be taken and
//! not given back would stay for its whole ttl.

use std::borrow::Cow;
use std::collections::HashSet;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use redis::{Pipeline, Value};
use tokio::task::JoinSet;

use super::cluster::{Cluster, down};
use super::node::{Node, Patience};
use super::nodes::Nodes;
use super::script::RIGHTS;
use super::trouble::Trouble;
use super::{Redis, unexpected};
use crate::backend::Claim;
use crate::error::{LockError, Unavailability};

/// What every lock may need, beside calling scripts. Channels are not: without them waiters poll.
const NEEDED: [&str; 16] = [
    "set", "get", "getex", "del", "pttl", "pexpire", "time", "zadd", "zrem", "zrange", "zrank",
    "zcard", "zpopmin", "hset", "hget", "hdel",
];

/// What stands before a command that the server does not know, see rights.lua.
const UNKNOWN: char = '?';

/// Whether a lock that the user may take can be given back: its companion keys may be denied.
#[derive(Debug, Default)]
pub(super) struct Rights {
    asked: AtomicBool,
    /// The user may run all commands.
    commands: AtomicBool,
    /// The user may use every key.
    every_key: AtomicBool,
    /// Templates of keys whose companion keys the user may use, too.
    templates: Mutex<HashSet<Cow<'static, str>>>,
}

impl Rights {
    /// Whether a grant by a plain SET can be released. Otherwise the script has to be asked, which
    /// the server refuses before anything is granted if one of the companion keys is denied.
    pub(super) fn covers(&self, claim: &Claim) -> bool {
        self.every_key.load(Ordering::Relaxed) || {
            let templates = self.templates.lock().unwrap_or_else(PoisonError::into_inner);
            templates.contains(claim.key.made_of())
        }
    }

    /// Takes note that the script was not refused for this lock.
    pub(super) fn learn(&self, claim: &Claim) {
        if !claim.key.made_of().is_empty() && !self.every_key.load(Ordering::Relaxed) {
            let mut templates = self.templates.lock().unwrap_or_else(PoisonError::into_inner);
            templates.insert(claim.key.shared_template());
        }
    }

    pub(super) fn are_known(&self) -> bool {
        self.commands.load(Ordering::Relaxed)
    }
}

impl Redis {
    /// Asks for the user's rights in one round trip, of which those to commands cannot be told yet
    /// where the user may use some keys only.
    pub(super) async fn ask_rights(&self, patience: Patience) -> Result<(), Trouble> {
        let every_key = self.nodes.rights(self.is_replicated(), patience).await?;
        self.rights.every_key.store(every_key, Ordering::Relaxed);
        self.rights.commands.store(every_key, Ordering::Relaxed);
        self.rights.asked.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Asks for them with the keys of a first lock, where they could not be told without.
    pub(super) async fn ask_rights_for(
        &self,
        claim: &Claim,
        patience: Patience,
    ) -> Result<(), Trouble> {
        if !self.rights.asked.load(Ordering::Relaxed) {
            // Nobody did when the manager started.
            self.rights(patience).await?;
            if self.rights.are_known() {
                return Ok(());
            }
        }
        let keys = slice::from_ref(&claim.key);
        let needed = needed(self.is_replicated());
        match self.nodes.eval(&RIGHTS, keys, &needed, patience).await {
            // The next lock asks again: the slot of this one is being moved.
            Err(Trouble::Passing(passing)) if passing.is_split() => return Ok(()),
            told => drop(read(told?)?),
        }
        self.rights.commands.store(true, Ordering::Relaxed);
        Ok(())
    }
}

fn needed(acks: bool) -> Vec<&'static str> {
    NEEDED.into_iter().chain(acks.then_some("wait")).collect()
}

impl Nodes {
    /// Asks for the user's rights in one round trip: of a cluster all primaries that answer. Tells
    /// whether every key is allowed.
    pub(super) async fn rights(&self, acks: bool, patience: Patience) -> Result<bool, Trouble> {
        let mut needed = needed(acks);
        match self {
            Nodes::One(node) => node.rights(&needed, patience).await,
            Nodes::Cluster(cluster) => {
                needed.push("asking");
                cluster.rights(needed, patience).await
            }
        }
    }
}

impl Cluster {
    async fn rights(&self, needed: Vec<&'static str>, patience: Patience) -> Result<bool, Trouble> {
        let mut asked = JoinSet::new();
        for node in self.map().nodes() {
            let (node, needed) = (node.clone(), needed.clone());
            asked.spawn(async move { node.rights(&needed, patience).await });
        }
        let (mut every_key, mut answered, mut trouble) = (true, false, down("no node was asked"));
        while let Some(rights) = asked.join_next().await {
            match rights {
                Ok(Ok(every)) => (every_key, answered) = (every_key && every, true),
                // A node that is away may be back before it is needed.
                Ok(Err(passing @ Trouble::Passing(_))) => trouble = passing,
                Ok(Err(denied)) => return Err(denied),
                Err(_) => {}
            }
        }
        if answered { Ok(every_key) } else { Err(trouble) }
    }
}

impl Node {
    async fn rights(&self, needed: &[&str], patience: Patience) -> Result<bool, Trouble> {
        let mut both = Pipeline::with_capacity(2);
        both.add_command(RIGHTS.by_hash(&[], needed)).add_command(RIGHTS.by_text(&[], needed));
        let replies = self.call_all(&both, 2, patience).await?;
        let [by_hash, by_text] = <[Value; 2]>::try_from(replies)
            .map_err(|replies| unexpected(&replies.into_iter().next().unwrap_or(Value::Nil)))?;
        let mut denied = Vec::new();
        let (by_hash, by_text) = (by_hash.extract_error(), by_text.extract_error());
        for (reply, command) in [(&by_hash, "evalsha"), (&by_text, "eval")] {
            match reply.as_ref().map_err(|error| Trouble::from(error.clone())) {
                Ok(_) | Err(Trouble::NoScript) => {}
                Err(Trouble::Final(LockError::AccessDenied { .. })) => {
                    denied.push(command.to_owned());
                }
                Err(trouble) => return Err(trouble),
            }
        }
        if denied.is_empty() { read(by_text.or(by_hash)?) } else { Err(lacking(&denied)) }
    }
}

/// Whether every key is allowed, unless commands are denied.
fn read(told: Value) -> Result<bool, Trouble> {
    let Value::Array(told) = told else { return Err(unexpected(&told)) };
    let mut told = told.into_iter();
    let every_key = told.next() != Some(Value::Int(0));
    let denied = told.filter_map(|command| match command {
        Value::BulkString(command) => String::from_utf8(command).ok(),
        _ => None,
    });
    let (unknown, denied): (Vec<_>, Vec<_>) =
        denied.partition(|command| command.starts_with(UNKNOWN));
    if let Some(command) = unknown.first() {
        let command = command.trim_start_matches(UNKNOWN).to_uppercase();
        let detail = format!("unknown command `{command}`");
        let reason = Unavailability::Protocol;
        return Err(Trouble::Final(LockError::Unavailable { reason, detail }));
    }
    if denied.is_empty() { Ok(every_key) } else { Err(lacking(&denied)) }
}

fn lacking(denied: &[String]) -> Trouble {
    let detail = format!("the user lacks +{}", denied.join(" +"));
    Trouble::Final(LockError::AccessDenied { detail })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_scripts_of_locks_call_is_asked_for() {
        let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/src/backend/redis/scripts");
        let mut called = HashSet::new();
        for script in std::fs::read_dir(scripts).unwrap().map(|script| script.unwrap().path()) {
            if script.extension().is_none_or(|extension| extension != "lua") {
                continue;
            }
            let text = std::fs::read_to_string(script).unwrap();
            for call in ["redis.call('", "redis.pcall('"] {
                let names = text.split(call).skip(1).filter_map(|rest| rest.split('\'').next());
                called.extend(names.map(str::to_lowercase));
            }
        }
        // What waiters can do without.
        let without = ["publish", "spublish", "pubsub"];
        called.retain(|name| !without.contains(&name.as_str()));
        assert!(called.len() > 10, "{called:?}");
        let missing: Vec<_> = called.iter().filter(|name| !NEEDED.contains(&&***name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
