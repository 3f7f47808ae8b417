//! The checks when a manager connects: of the user's rights, because a lock that can be acquired
//! and not released would stay for its whole ttl; and of the server, because every lock fails on a
//! replica.

use std::{iter, slice};

use futures_util::StreamExt;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use redis::{Value, cmd};

use super::Redis;
use crate::store::backend::Backend;
use crate::store::calls::budget::Budget;
use crate::store::calls::error::CallError;
use crate::store::redis::client::node::Node;
use crate::store::redis::client::script::ScriptCall;
use crate::store::redis::reply::parsed;
use crate::store::redis::scripts::{self, OF_WAITERS, RIGHTS, needed_by};
use crate::store::redis::topology::cluster::down;
use crate::store::redis::topology::route::Topology;
use crate::value::error::{LockError, Unavailability};
use crate::value::random::HashMap;

impl Redis {
    /// Connects, checks the user's rights, and refuses a replica. `receives` is true where callers
    /// may wait.
    pub(super) async fn check_server(
        &self,
        receives: bool,
        budget: Budget,
    ) -> Result<(), CallError> {
        self.check_rights(receives, budget).await?;
        self.refuse_replica(budget).await
    }

    /// Refuses a server that is a replica, and names its primary where the user may ask for it.
    /// Sentinels and clusters name primaries themselves.
    async fn refuse_replica(&self, budget: Budget) -> Result<(), CallError> {
        let Topology::One(node) = &self.nodes else { return Ok(()) };
        if self.may_fail_over() || !node.is_replica(budget).await {
            return Ok(());
        }
        // A server may have been replaced under its name: the next connection leads to its heir.
        node.leave(budget).await;
        if !node.is_replica(budget).await {
            return Ok(());
        }
        let detail = match node.primary(budget).await {
            Some(primary) => format!("connect to its primary, {primary}"),
            None => "connect to its primary".to_owned(),
        };
        node.leave(budget).await;
        let server = Some(node.server().into());
        let error = LockError::unavailable_at(server, Unavailability::ReadOnly, detail);
        Err(CallError::Final(error))
    }

    /// Connects and asks all primaries for the user's rights. Returns whether the user may use
    /// every key: otherwise the rights to commands cannot be known without a key.
    pub(super) async fn check_rights(
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
        let needed = &needed;
        let ask = |node: Node| async move {
            let rights = node.rights(needed, budget).await;
            (node.server(), rights.map_err(|error| error.at(|| node.server())))
        };
        let mut asked: FuturesUnordered<_> = nodes.into_iter().map(ask).collect();
        let (mut found, mut error) = (Vec::new(), down("no node was asked"));
        while let Some((server, rights)) = asked.next().await {
            match rights {
                Ok((every_key, lacking)) => found.push((server, every_key, lacking)),
                // A node without an answer may be back before it is needed.
                Err(transient @ CallError::Transient(_)) => error = transient,
                Err(denied) => return Err(denied),
            }
        }
        if found.is_empty() {
            return Err(error);
        }
        let every_key = found.iter().all(|(_, every_key, _)| *every_key);
        let is_first = self.every_key.set(every_key).is_ok();
        for (server, _, lacking) in found {
            if is_first && !lacking.is_empty() {
                let lacking = lacking.join(" ");
                tracing::warn!(%server, lacking, "the user lacks rights without which waiters poll");
            }
        }
        Ok(every_key)
    }

    /// The same error, with the commands that the user lacks: most servers say only that the script
    /// was denied one.
    pub(super) async fn with_denied_commands(
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

impl Node {
    /// Asks for the rights as [`read`] returns them.
    async fn rights(
        &self,
        needed: &[&str],
        budget: Budget,
    ) -> Result<(bool, Vec<String>), CallError> {
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

    /// Whether the server says so. Every user may ask by HELLO; a server that does not know it is
    /// left to the first lock.
    async fn is_replica(&self, budget: Budget) -> bool {
        let hello = self.call(cmd("HELLO"), budget).await;
        let facts: Result<HashMap<String, Value>, _> = hello.and_then(parsed);
        let role = facts.ok().and_then(|mut facts| parsed::<String>(facts.remove("role")?).ok());
        role.as_deref() == Some("replica")
    }

    /// The host and port of the primary of this replica.
    async fn primary(&self, budget: Budget) -> Option<String> {
        // A replica that has received nothing has the offset -1, which `redis::Role` does not read.
        type Replica = (String, String, u16, String, i64);
        let (_, host, port, ..): Replica =
            self.call(cmd("ROLE"), budget).await.and_then(parsed).ok()?;
        Some(format!("{host}:{port}"))
    }

    /// Gives up the connection, so that the next call opens another.
    async fn leave(&self, budget: Budget) {
        if let Ok(live) = self.connect(budget.until).await {
            self.discard(&live);
        }
    }
}

/// Whether the user may use every key, and the missing rights that only waiters would use. Fails if
/// a right is missing that locks need.
fn read(reply: Value) -> Result<(bool, Vec<String>), CallError> {
    let (every_key, missing): (_, Vec<String>) = parsed(reply)?;
    let is_of_waiters = |right: &String| {
        let command = right.trim_start_matches('+');
        right.starts_with('&') || OF_WAITERS.as_flattened().contains(&command)
    };
    let (lacking, denied): (Vec<_>, Vec<_>) = missing.into_iter().partition(is_of_waiters);
    match denied.is_empty() {
        true => Ok((every_key, lacking)),
        false => Err(lacks(&denied)),
    }
}

fn lacks(rights: &[String]) -> CallError {
    let detail = format!("the user lacks {}", rights.join(" "));
    CallError::Final(LockError::access_denied(detail))
}
