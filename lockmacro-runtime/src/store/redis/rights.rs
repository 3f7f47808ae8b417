//! Checking the user's rights when a manager connects: a lock that can be acquired and not released
//! would stay for its whole ttl.

use std::collections::BTreeSet;
#[cfg(feature = "defer")]
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
use crate::value::unavailability::Unavailability;

/// The commands for pushed grants, on one server and in a cluster. Without them waiters poll.
const SUBSCRIBE_COMMANDS: [[&str; 3]; 2] =
    [["subscribe", "publish", "pubsub|numsub"], ["ssubscribe", "spublish", "pubsub|shardnumsub"]];

/// In a reply of check_rights.lua: the mark before a command that the server does not know, and the
/// entries for a channel that is denied and for one that is allowed without need.
const UNKNOWN: char = '?';
const CHANNEL: &str = "&";
const OTHER_CHANNEL: &str = "*";

impl Redis {
    /// Asks for the user's rights in one round trip. `receives` is true where callers may wait.
    ///
    /// Where the user may use only some keys, the rights to commands cannot be known without a key.
    pub(crate) async fn ask_rights(&self, receives: bool, budget: Budget) -> Result<(), CallError> {
        let channels = || [self.grants.channel(0), self.grants.channel_of_others().to_owned()];
        let channels = receives.then(channels);
        let reply = self.nodes.rights(self.is_replicated(), channels, budget).await;
        let RightsReply { every_key, lacking, other_channels, server } = reply?;
        self.rights.every_key.store(every_key, Ordering::Relaxed);
        self.rights.asked.store(true, Ordering::Relaxed);
        let channels = self.grants.pattern();
        if !lacking.is_empty() && !self.rights.slow.swap(true, Ordering::Relaxed) {
            let named =
                |right: &String| if right == CHANNEL { &channels } else { right }.to_owned();
            let lacking = lacking.iter().map(named).collect::<Vec<_>>().join(" ");
            tracing::warn!(
                %server,
                lacking,
                "the user lacks rights without which waiters are served slowly"
            );
        }
        if other_channels && !self.rights.wide.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %server,
                enough = channels,
                "the user may use channels that its locks do not need"
            );
        }
        Ok(())
    }
}

impl Redis {
    /// The same error, with the commands that the user lacks: most servers say only that the script
    /// was denied one.
    pub(crate) async fn with_denied_commands(
        &self,
        denied: LockError,
        call: ScriptCall<'_>,
        budget: Budget,
    ) -> CallError {
        let first = &call.keys[..call.keys.len().min(1)];
        if first.is_empty() {
            return CallError::DeniedInScript(denied);
        }
        let commands = needed_by([call.script]);
        let needed: Vec<_> =
            ["", ""].into_iter().chain(commands.iter().map(String::as_str)).collect();
        let reply = self.nodes.eval(RIGHTS.with(first, &needed), budget).await;
        match reply.map(read) {
            Ok(Err(CallError::Final(named @ LockError::AccessDenied { .. }))) => {
                self.at_server_of(&first[0], CallError::DeniedInScript(named))
            }
            _ => CallError::DeniedInScript(denied),
        }
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
        channels: Option<[String; 2]>,
        budget: Budget,
    ) -> Result<RightsReply, CallError> {
        let receives = channels.is_some();
        let mut needed: Vec<_> = channels.unwrap_or_default().into();
        needed.extend(needed_by(scripts::ALL));
        let is_cluster = matches!(self, Topology::Cluster(_));
        let subscribe =
            SUBSCRIBE_COMMANDS[usize::from(is_cluster)].into_iter().filter(|_| receives);
        let others = [acks.then_some("wait"), is_cluster.then_some("asking")];
        needed.extend(subscribe.chain(others.into_iter().flatten()).map(str::to_owned));
        match self {
            Topology::One(node) => node.rights(&needed, budget).await,
            Topology::Cluster(cluster) => cluster.rights(needed, budget).await,
        }
    }
}

impl Cluster {
    async fn rights(&self, needed: Vec<String>, budget: Budget) -> Result<RightsReply, CallError> {
        let mut asked = JoinSet::new();
        for node in self.map().nodes() {
            let (node, needed) = (node.clone(), needed.clone());
            asked.spawn(async move { node.rights(&needed, budget).await });
        }
        let mut all = RightsReply { every_key: true, ..RightsReply::default() };
        let (mut answered, mut error) = (false, down("no node was asked"));
        while let Some(rights) = asked.join_next().await {
            match rights {
                Ok(Ok(reply)) => {
                    (all.every_key, answered) = (all.every_key && reply.every_key, true);
                    if !reply.lacking.is_empty() || reply.other_channels {
                        all.server = reply.server;
                        all.lacking.extend(reply.lacking);
                        all.other_channels |= reply.other_channels;
                    }
                }
                // A node without an answer may be back before it is needed.
                Ok(Err(transient @ CallError::Transient(_))) => error = transient,
                Ok(Err(denied)) => return Err(denied),
                Err(_) => {}
            }
        }
        if answered { Ok(all) } else { Err(error) }
    }
}

impl Node {
    async fn rights(&self, needed: &[String], budget: Budget) -> Result<RightsReply, CallError> {
        let needed: Vec<_> = needed.iter().map(String::as_str).collect();
        let mut both = Pipeline::with_capacity(2);
        let call = RIGHTS.with(&[], &needed);
        both.add_command(call.by_hash()).add_command(call.by_text());
        let replies = self.call_all(&both, 2, budget).await?;
        let [by_hash, by_text] = <[Value; 2]>::try_from(replies)
            .map_err(|replies| unexpected(&replies.into_iter().next().unwrap_or(Value::Nil)))?;
        let mut denied = Vec::new();
        let (by_hash, by_text) = (by_hash.extract_error(), by_text.extract_error());
        for (reply, command) in [(&by_hash, "evalsha"), (&by_text, "eval")] {
            match reply.as_ref().map_err(|error| CallError::from(error.clone())) {
                Ok(_) | Err(CallError::NoScript) => {}
                Err(CallError::Final(LockError::AccessDenied { .. })) => {
                    denied.push(command.to_owned());
                }
                Err(error) => return Err(error),
            }
        }
        let reply = match denied.is_empty() {
            true => read(by_text.or(by_hash)?),
            false => Err(lacking(&denied)),
        };
        let reply = reply.map_err(|error| error.at(|| self.server()))?;
        Ok(RightsReply { server: self.server(), ..reply })
    }
}

/// The rights on a server that denies nothing that locks need.
#[derive(Default)]
struct RightsReply {
    /// Every key is allowed.
    every_key: bool,
    /// The missing rights that only waiters would use.
    lacking: BTreeSet<String>,
    /// Only some keys are allowed, and channels beside those that waiters use.
    other_channels: bool,
    /// A server with such missing rights or channels.
    server: String,
}

fn read(reply: Value) -> Result<RightsReply, CallError> {
    let Value::Array(reply) = reply else { return Err(unexpected(&reply)) };
    let mut reply = reply.into_iter();
    let every_key = reply.next() != Some(Value::Int(0));
    let denied = reply.filter_map(|command| match command {
        Value::BulkString(command) => String::from_utf8(command).ok(),
        _ => None,
    });
    let is_of_waiters = |right: &String| {
        let right = right.trim_start_matches(UNKNOWN);
        right == CHANNEL || SUBSCRIBE_COMMANDS.as_flattened().contains(&right)
    };
    let (of_others, denied): (Vec<_>, Vec<_>) = denied.partition(|right| right == OTHER_CHANNEL);
    let (of_waiters, denied): (Vec<_>, Vec<_>) = denied.into_iter().partition(is_of_waiters);
    let (unknown, denied): (Vec<_>, Vec<_>) =
        denied.into_iter().partition(|command| command.starts_with(UNKNOWN));
    if let Some(command) = unknown.first() {
        let command = command.trim_start_matches(UNKNOWN).to_uppercase();
        let detail = format!("unknown command `{command}`");
        let reason = Unavailability::Protocol;
        return Err(CallError::Final(LockError::unavailable_at(None, reason, detail)));
    }
    if !denied.is_empty() {
        return Err(lacking(&denied));
    }
    // A command that the server does not know is no matter of rights.
    let of_waiters = of_waiters.into_iter().filter(|right| !right.starts_with(UNKNOWN));
    let lacking = of_waiters.map(|right| match &*right {
        CHANNEL => CHANNEL.to_owned(),
        command => format!("+{command}"),
    });
    let (lacking, other_channels) = (lacking.collect(), !of_others.is_empty());
    Ok(RightsReply { every_key, lacking, other_channels, server: String::new() })
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
        let needed: Vec<_> =
            ["", ""].into_iter().chain(commands.iter().map(String::as_str)).collect();
        let call = jobs::RIGHTS.with(slice::from_ref(function), &needed);
        let reply = read(self.nodes.eval(call, budget).await?);
        reply.map(drop).map_err(|error| self.at_server_of(function, error))
    }
}

fn lacking(denied: &[String]) -> CallError {
    let detail = format!("the user lacks +{}", denied.join(" +"));
    CallError::Final(LockError::access_denied(detail))
}
