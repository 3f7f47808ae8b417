//! Checking the user's rights when a manager connects: a lock that can be acquired and not released
//! would stay for its whole ttl.

use std::collections::BTreeSet;
use std::slice;
use std::sync::atomic::Ordering;

use redis::{Pipeline, Value};

use crate::store::redis::client::budget::Budget;
use crate::store::redis::client::error::{CallError, unexpected};
use crate::store::redis::client::node::Node;
use crate::store::redis::client::script::{Script, ScriptCall};
#[cfg(feature = "defer")]
use crate::store::redis::scripts::jobs;
use crate::store::redis::scripts::{self, RIGHTS};
use crate::store::redis::store::Redis;
use crate::store::redis::topology::cluster::{Cluster, down};
use crate::store::redis::topology::route::Topology;
use crate::value::error::LockError;
use crate::value::key::LockKey;
use crate::value::task::JoinSet;

/// The commands for pushed grants, on one server and in a cluster. Without them waiters poll.
const OF_WAITERS: [[&str; 3]; 2] =
    [["subscribe", "publish", "pubsub|numsub"], ["ssubscribe", "spublish", "pubsub|shardnumsub"]];

impl Redis {
    /// Asks for the user's rights in one round trip. `receives` is true where callers may wait.
    ///
    /// Where the user may use only some keys, the rights to commands cannot be known without a key.
    pub(crate) async fn ask_rights(&self, receives: bool, budget: Budget) -> Result<(), CallError> {
        let channels = receives.then(|| self.grants.pattern());
        let found = self.nodes.rights(self.is_replicated(), channels, budget).await?;
        let every_key = found.iter().all(|found| found.every_key);
        self.rights.every_key.store(every_key, Ordering::Relaxed);
        let is_first = !self.rights.asked.swap(true, Ordering::Relaxed);
        for Found { server, lacking, .. } in found {
            if is_first && !lacking.is_empty() {
                let lacking = lacking.join(" ");
                tracing::warn!(%server, lacking, "the user lacks rights without which waiters poll");
            }
        }
        Ok(())
    }

    /// The same error, with the commands that the user lacks: most servers say only that the script
    /// was denied one.
    pub(crate) async fn with_denied_commands(
        &self,
        denied: LockError,
        call: ScriptCall<'_>,
        budget: Budget,
    ) -> CallError {
        let Some(key) = call.keys.first() else { return CallError::DeniedInScript(denied) };
        let commands = needed_by([call.script]);
        let needed: Vec<_> = [""].into_iter().chain(commands.iter().map(String::as_str)).collect();
        let reply = self.nodes.eval(RIGHTS.with(slice::from_ref(key), &needed), budget).await;
        let denied = match reply.map(read) {
            Ok(Err(CallError::Final(named @ LockError::AccessDenied { .. }))) => named,
            _ => denied,
        };
        self.at_server_of(key, CallError::DeniedInScript(denied))
    }

    /// The same error with the address of the server of the key, if it is known.
    fn at_server_of(&self, key: &LockKey, error: CallError) -> CallError {
        match self.server_of(key) {
            Some(server) => error.at(|| server.into()),
            None => error,
        }
    }
}

/// The commands that scripts need. Those for pushes fail no script.
fn needed_by(scripts: impl IntoIterator<Item = &'static Script>) -> BTreeSet<String> {
    let is_of_pushes = |command: &str| ["publish", "spublish", "pubsub"].contains(&command);
    let commands = scripts.into_iter().flat_map(Script::commands);
    commands.filter(|command| !is_of_pushes(command)).collect()
}

impl Topology {
    /// Asks for the user's rights in one round trip; in a cluster all primaries.
    async fn rights(
        &self,
        acks: bool,
        channels: Option<String>,
        budget: Budget,
    ) -> Result<Vec<Found>, CallError> {
        let is_cluster = matches!(self, Topology::Cluster(_));
        let of_waiters = OF_WAITERS[usize::from(is_cluster)].into_iter();
        let of_waiters = of_waiters.filter(|_| channels.is_some());
        let others = [acks.then_some("wait"), is_cluster.then_some("asking")];
        let more = of_waiters.chain(others.into_iter().flatten()).map(str::to_owned);
        let mut needed = vec![channels.clone().unwrap_or_default()];
        needed.extend(needed_by(scripts::ALL).into_iter().chain(more));
        match self {
            Topology::One(node) => Ok(vec![node.rights(&needed, budget).await?]),
            Topology::Cluster(cluster) => cluster.rights(needed, budget).await,
        }
    }
}

impl Cluster {
    async fn rights(&self, needed: Vec<String>, budget: Budget) -> Result<Vec<Found>, CallError> {
        let mut asked = JoinSet::new();
        for node in self.map().nodes() {
            let (node, needed) = (node.clone(), needed.clone());
            asked.spawn(async move { node.rights(&needed, budget).await });
        }
        let (mut all, mut error) = (Vec::new(), down("no node was asked"));
        while let Some(rights) = asked.join_next().await {
            match rights {
                Ok(Ok(found)) => all.push(found),
                // A node without an answer may be back before it is needed.
                Ok(Err(transient @ CallError::Transient(_))) => error = transient,
                Ok(Err(denied)) => return Err(denied),
                Err(_) => {}
            }
        }
        if all.is_empty() { Err(error) } else { Ok(all) }
    }
}

impl Node {
    async fn rights(&self, needed: &[String], budget: Budget) -> Result<Found, CallError> {
        let needed: Vec<_> = needed.iter().map(String::as_str).collect();
        let mut both = Pipeline::with_capacity(2);
        let call = RIGHTS.with(&[], &needed);
        both.add_command(call.by_hash()).add_command(call.by_text());
        let replies = self.call_all(&both, 2, budget).await?;
        let [by_hash, by_text] = <[Value; 2]>::try_from(replies)
            .map_err(|replies| unexpected(&replies.into_iter().next().unwrap_or(Value::Nil)))?;
        let mut denied = Vec::new();
        let (by_hash, by_text) = (by_hash.extract_error(), by_text.extract_error());
        for (reply, right) in [(&by_hash, "+evalsha"), (&by_text, "+eval")] {
            match reply.as_ref().map_err(|error| CallError::from(error.clone())) {
                Ok(_) | Err(CallError::NoScript) => {}
                Err(CallError::Final(LockError::AccessDenied { .. })) => {
                    denied.push(right.to_owned());
                }
                Err(error) => return Err(error),
            }
        }
        let found = match denied.is_empty() {
            true => read(by_text.or(by_hash)?),
            false => Err(lacks(&denied)),
        };
        let found = found.map_err(|error| error.at(|| self.server()))?;
        Ok(Found { server: self.server(), ..found })
    }
}

/// The rights on a server that denies nothing that locks need.
struct Found {
    every_key: bool,
    /// The missing rights that only waiters would use.
    lacking: Vec<String>,
    server: String,
}

fn read(reply: Value) -> Result<Found, CallError> {
    let Value::Array(reply) = reply else { return Err(unexpected(&reply)) };
    let mut reply = reply.into_iter();
    let every_key = reply.next() != Some(Value::Int(0));
    let rights = reply.filter_map(|right| match right {
        Value::BulkString(right) => String::from_utf8(right).ok(),
        _ => None,
    });
    let is_of_waiters = |right: &String| {
        let command = right.trim_start_matches('+');
        right.starts_with('&') || OF_WAITERS.as_flattened().contains(&command)
    };
    let (lacking, denied): (Vec<_>, Vec<_>) = rights.partition(is_of_waiters);
    match denied.is_empty() {
        true => Ok(Found { every_key, lacking, server: String::new() }),
        false => Err(lacks(&denied)),
    }
}

fn lacks(rights: &[String]) -> CallError {
    let detail = format!("the user lacks {}", rights.join(" "));
    CallError::Final(LockError::access_denied(detail))
}

#[cfg(feature = "defer")]
impl Redis {
    /// Asks whether the user may do what the deferred calls of a function need.
    pub(crate) async fn ask_rights_for_calls(
        &self,
        function: &LockKey,
        budget: Budget,
    ) -> Result<(), CallError> {
        let commands = needed_by(jobs::ALL);
        let needed: Vec<_> = [""].into_iter().chain(commands.iter().map(String::as_str)).collect();
        let call = jobs::RIGHTS.with(slice::from_ref(function), &needed);
        let reply = read(self.nodes.eval(call, budget).await?);
        reply.map(drop).map_err(|error| self.at_server_of(function, error))
    }
}
