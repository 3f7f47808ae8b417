//! The checks when a manager connects: of the user's rights, because a lock that can be acquired
//! and not released would stay for its whole ttl; and of the server, because every lock fails on a
//! replica.

use std::{iter, slice};

use futures_util::StreamExt;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use redis::{Value, cmd};

use super::store::Redis;
use crate::store::redis::client::node::Node;
use crate::store::redis::client::script::ScriptCall;
use crate::store::redis::reply::parsed;
use crate::store::redis::scripts::{self, OF_WAITERS, RIGHTS, needed_by};
use crate::store::redis::topology::cluster::down;
use crate::store::redis::topology::route::Topology;
use crate::store::remote::budget::Budget;
use crate::store::remote::error::RemoteError;
use crate::sys::random::HashMap;
use crate::value::error::{LockError, UnavailableReason};
use crate::value::key::LockKey;

/// The rights of the user, as a server tells them.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    /// Whether the user may use every key: otherwise the rights to commands on keys are known for
    /// given keys only.
    pub(crate) every_key: bool,
    /// In the form that `ACL SETUSER` takes.
    pub(crate) missing: Vec<String>,
    /// The policy by which the server evicts keys when it is full; empty if it evicts none, or the
    /// user may not ask. `None` of a server before Redis 7, which tells no rights.
    pub(crate) evicts: Option<String>,
}

impl Redis {
    /// Connects, checks the user's rights, and refuses a replica. `receives` is true where callers
    /// may wait.
    pub(super) async fn check_server(
        &self,
        receives: bool,
        budget: Budget,
    ) -> Result<(), RemoteError> {
        self.check_rights(receives, budget).await?;
        self.refuse_replica(budget).await
    }

    /// Refuses a server that is a replica, and names its primary where the user may ask for it.
    /// Sentinels and clusters name primaries themselves.
    async fn refuse_replica(&self, budget: Budget) -> Result<(), RemoteError> {
        let Topology::One(node) = &self.nodes else { return Ok(()) };
        if self.can_fail_over || !node.is_replica(budget).await {
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
        let error = LockError::unavailable_at(server, UnavailableReason::ReadOnly, detail);
        Err(RemoteError::Final(error))
    }

    /// Connects and asks all primaries for the user's rights. Returns whether the user may use
    /// every key: otherwise the rights to commands cannot be known without a key.
    pub(super) async fn check_rights(
        &self,
        receives: bool,
        budget: Budget,
    ) -> Result<bool, RemoteError> {
        let nodes = self.nodes.all(budget.until).await?;
        let needed = &self.needed(receives, true);
        let ask = |node: Node| async move {
            let rights = node.rights(&[], needed, budget).await;
            let checked = rights.and_then(|rights| rights.of_waiters().map(drop).map(|()| rights));
            (node.server(), checked.map_err(|error| error.at(|| node.server())))
        };
        let mut asked: FuturesUnordered<_> = nodes.into_iter().map(ask).collect();
        let mut found = Vec::new();
        let mut error = down("no node was asked");
        while let Some((server, rights)) = asked.next().await {
            match rights {
                Ok(rights) => found.push((server, rights)),
                // A node without an answer may be back before it is needed.
                Err(transient @ RemoteError::Transient(_)) => error = transient,
                // Whoever asks for a key of this node would be denied as well.
                Err(denied) => return Err(denied),
            }
        }
        if found.is_empty() {
            return Err(error);
        }
        let every_key = found.iter().all(|(_, rights)| rights.every_key);
        // Warned of once for a manager, and not for each of its connections.
        let is_first = self.every_key.set(every_key).is_ok();
        for (server, Rights { missing, evicts, .. }) in found {
            if is_first && !missing.is_empty() {
                let lacking = missing.join(" ");
                tracing::warn!(%server, lacking, "the user lacks rights without which waiters poll");
            }
            if let Some(policy) = evicts.filter(|policy| is_first && !policy.is_empty()) {
                tracing::warn!(%server, policy, "the server evicts locks when it is full");
            }
        }
        Ok(every_key)
    }

    /// The pattern of the channels of grants, if the manager `receives` any, and the commands that
    /// locks need of a user who may use `every_key`, or some keys only.
    pub(crate) fn needed(&self, receives: bool, every_key: bool) -> Vec<String> {
        let is_cluster = matches!(self.nodes, Topology::Cluster(_));
        let channels = if receives { self.grants.pattern() } else { String::new() };
        let of_waiters: &[_] = if receives { &OF_WAITERS[usize::from(is_cluster)] } else { &[] };
        let more = [(self.replicated.is_some(), "wait"), (is_cluster, "asking")];
        let more = more.into_iter().filter_map(|(is_used, name)| is_used.then_some(name));
        let more = of_waiters.iter().copied().chain(more).map(str::to_owned);
        iter::once(channels).chain(needed_by(scripts::called(every_key))).chain(more).collect()
    }

    /// The same error, with the commands that the user lacks: most servers say only that the script
    /// was denied one.
    pub(super) async fn with_denied_commands(
        &self,
        denied: LockError,
        call: ScriptCall<'_>,
        budget: Budget,
    ) -> RemoteError {
        let Some(key) = call.keys.first() else { return RemoteError::DeniedInScript(denied) };
        let commands = needed_by([call.script]);
        let needed: Vec<_> = iter::once("").chain(commands.iter().map(String::as_str)).collect();
        let reply = self.nodes.eval(RIGHTS.with(slice::from_ref(key), &needed), budget).await;
        let rights = reply.and_then(Rights::read);
        let denied = match rights.and_then(|rights| rights.of_waiters().map(drop)) {
            Err(RemoteError::Final(named @ LockError::AccessDenied { .. })) => named,
            _ => denied,
        };
        let denied = RemoteError::DeniedInScript(denied);
        match self.server_of(key) {
            Some(server) => denied.at(|| server.into()),
            None => denied,
        }
    }
}

impl Node {
    /// Asks for the rights of the user, on these keys if there are any.
    pub(crate) async fn rights(
        &self,
        keys: &[LockKey],
        needed: &[String],
        budget: Budget,
    ) -> Result<Rights, RemoteError> {
        let needed: Vec<_> = needed.iter().map(String::as_str).collect();
        let call = RIGHTS.with(keys, &needed);
        // By hash and by text: an ACL may allow one of them, and locks need both.
        let both = join(self.call(call, budget), self.call(call.by_text(), budget));
        let (by_hash, by_text) = both.await;
        let mut denied = Vec::new();
        let mut found = None;
        for (reply, right) in [(by_hash, "+evalsha"), (by_text, "+eval")] {
            match reply {
                Ok(reply) => found = Some(Rights::read(reply)?),
                Err(RemoteError::NoScript) => {}
                Err(RemoteError::Final(LockError::AccessDenied { .. })) => {
                    denied.push(right.to_owned());
                }
                Err(error) => return Err(error),
            }
        }
        let mut rights = found.unwrap_or_default();
        rights.missing.extend(denied);
        Ok(rights)
    }

    /// Whether the server says so. Every user may ask by HELLO.
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

impl Rights {
    fn read(reply: Value) -> Result<Self, RemoteError> {
        let (every_key, missing, evicts) = parsed(reply)?;
        Ok(Self { every_key, missing, evicts })
    }

    /// Those of the missing rights that only waiters would use. Fails if a right is missing that
    /// locks need.
    fn of_waiters(&self) -> Result<Vec<&str>, RemoteError> {
        let is_of_waiters = |right: &&str| {
            let command = right.trim_start_matches('+');
            right.starts_with('&') || OF_WAITERS.as_flattened().contains(&command)
        };
        let missing = self.missing.iter().map(String::as_str);
        let (lacking, denied): (_, Vec<_>) = missing.partition(is_of_waiters);
        if denied.is_empty() {
            return Ok(lacking);
        }
        let detail = format!("the user lacks {}", denied.join(" "));
        Err(RemoteError::Final(LockError::access_denied(detail)))
    }
}
