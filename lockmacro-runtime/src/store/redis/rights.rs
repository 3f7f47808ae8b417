//! Checking the user's rights when a manager connects: a lock that can be acquired and not released
//! would stay for its whole ttl.

use std::collections::BTreeSet;
use std::{iter, slice};

use futures_util::StreamExt;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use redis::Value;

use crate::store::redis::client::budget::Budget;
use crate::store::redis::client::error::CallError;
use crate::store::redis::client::node::Node;
use crate::store::redis::client::script::{Script, ScriptCall};
use crate::store::redis::reply::parsed;
use crate::store::redis::scripts::{self, RIGHTS};
use crate::store::redis::store::Redis;
use crate::store::redis::topology::cluster::down;
use crate::store::redis::topology::route::Topology;
use crate::value::error::LockError;

/// The commands for pushed grants, on one server and in a cluster. Without them waiters poll.
pub(crate) const OF_WAITERS: [[&str; 3]; 2] =
    [["subscribe", "publish", "pubsub|numsub"], ["ssubscribe", "spublish", "pubsub|shardnumsub"]];

impl Redis {
    /// Whether the user may use every key, as the last check found. Checks the rights if the
    /// manager was made without.
    pub(crate) async fn may_use_every_key(&self, budget: Budget) -> Result<bool, CallError> {
        match self.every_key.get() {
            Some(every_key) => Ok(*every_key),
            None => Box::pin(self.check_rights(true, budget)).await,
        }
    }

    /// Connects and asks all primaries for the user's rights. `receives` is true where callers may
    /// wait. Returns whether the user may use every key: otherwise the rights to commands cannot be
    /// known without a key.
    pub(crate) async fn check_rights(
        &self,
        receives: bool,
        budget: Budget,
    ) -> Result<bool, CallError> {
        let is_cluster = matches!(self.nodes, Topology::Cluster(_));
        let channels = if receives { self.grants.pattern() } else { String::new() };
        let of_scripts = needed_by(scripts::ALL);
        let mut needed: Vec<_> = vec![&*channels];
        needed.extend(of_scripts.iter().map(String::as_str));
        if receives {
            needed.extend(OF_WAITERS[usize::from(is_cluster)]);
        }
        needed.extend(self.is_replicated().then_some("wait"));
        needed.extend(is_cluster.then_some("asking"));
        let nodes = self.nodes.all(budget.until).await?;
        let ask = |node: Node| {
            let needed = &needed;
            async move {
                let rights = node.rights(needed, budget).await;
                (node.server(), rights.map_err(|error| error.at(|| node.server())))
            }
        };
        let mut asked: FuturesUnordered<_> = nodes.into_iter().map(ask).collect();
        let (mut found, mut error) = (Vec::new(), down("no node was asked"));
        while let Some((server, rights)) = asked.next().await {
            match rights {
                Ok(rights) => found.push((server, rights)),
                // A node without an answer may be back before it is needed.
                Err(transient @ CallError::Transient(_)) => error = transient,
                Err(denied) => return Err(denied),
            }
        }
        if found.is_empty() {
            return Err(error);
        }
        let every_key = found.iter().all(|(_, rights)| rights.every_key);
        let is_first = self.every_key.set(every_key).is_ok();
        for (server, Rights { lacking, .. }) in found {
            if is_first && !lacking.is_empty() {
                let lacking = lacking.join(" ");
                tracing::warn!(%server, lacking, "the user lacks rights without which waiters poll");
            }
        }
        Ok(every_key)
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
        let needed: Vec<_> = iter::once("").chain(commands.iter().map(String::as_str)).collect();
        let reply = self.nodes.eval(RIGHTS.with(slice::from_ref(key), &needed), budget).await;
        let denied = match reply.and_then(read) {
            Err(CallError::Final(named @ LockError::AccessDenied { .. })) => named,
            _ => denied,
        };
        let denied = CallError::DeniedInScript(denied);
        match self.server_of(key) {
            Some(server) => denied.at(|| server.into()),
            None => denied,
        }
    }
}

/// The commands that scripts need, but for one for pushes, which fails no script.
pub(crate) fn needed_by(scripts: impl IntoIterator<Item = &'static Script>) -> BTreeSet<String> {
    let commands = scripts.into_iter().flat_map(Script::commands);
    commands.filter(|command| command != "pubsub").collect()
}

impl Node {
    async fn rights(&self, needed: &[&str], budget: Budget) -> Result<Rights, CallError> {
        let call = RIGHTS.with(&[], needed);
        let both = join(self.call(call, budget), self.call(call.by_text(), budget));
        let (by_hash, by_text) = both.await;
        let (mut denied, mut found) = (Vec::new(), Value::Nil);
        for (reply, right) in [(by_hash, "+evalsha"), (by_text, "+eval")] {
            match reply {
                Ok(reply) => found = reply,
                Err(CallError::NoScript) => {}
                Err(CallError::Final(LockError::AccessDenied { .. })) => {
                    denied.push(right.to_owned());
                }
                Err(error) => return Err(error),
            }
        }
        if denied.is_empty() { read(found) } else { Err(lacks(&denied)) }
    }
}

/// The rights on a server that denies nothing that locks need.
struct Rights {
    every_key: bool,
    /// The missing rights that only waiters would use.
    lacking: Vec<String>,
}

fn read(reply: Value) -> Result<Rights, CallError> {
    let (every_key, missing): (_, Vec<String>) = parsed(reply)?;
    let is_of_waiters = |right: &String| {
        let command = right.trim_start_matches('+');
        right.starts_with('&') || OF_WAITERS.as_flattened().contains(&command)
    };
    let (lacking, denied): (Vec<_>, Vec<_>) = missing.into_iter().partition(is_of_waiters);
    match denied.is_empty() {
        true => Ok(Rights { every_key, lacking }),
        false => Err(lacks(&denied)),
    }
}

fn lacks(rights: &[String]) -> CallError {
    let detail = format!("the user lacks {}", rights.join(" "));
    CallError::Final(LockError::access_denied(detail))
}
