//! The facts that servers tell of themselves, for somebody who looks for the cause of a trouble.

use std::collections::BTreeMap;
use std::slice;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{Value, cmd};

use crate::inspect::clock_facts::clock_facts;
use crate::inspect::found::{InspectedServer, ServerFacts};
use crate::inspect::redis::rights::{escaped, keys};
use crate::inspect::redis::scripts::MAY_WRITE;
use crate::store::redis::client::node::Node;
use crate::store::redis::ready::Rights;
use crate::store::redis::reply::parsed;
use crate::store::redis::store::Redis;
use crate::store::redis::topology::route::Topology;
use crate::store::redlock::store::Redlock;
use crate::store::remote::error::RemoteError;
use crate::value::companion::SLOTS;
use crate::value::key::LockKey;

/// Settings that INFO does not have.
const CONFIG: [&str; 3] = ["save", "appendfsync", "min-replicas-to-write"];

/// Asks all primaries. The rights of the user are checked on the key if one is given.
/// `receives`: callers may wait.
pub(crate) async fn of_all(
    redis: &Redis,
    key: Option<&LockKey>,
    receives: bool,
) -> Vec<InspectedServer> {
    let nothing = LockKey::from("");
    let failed = |error: RemoteError| error.into_error(key.unwrap_or(&nothing));
    let nodes = match redis.nodes.all(redis.budget().until).await {
        Ok(nodes) => nodes,
        Err(error) => {
            let server = "the cluster".to_owned();
            let facts = Err(failed(error));
            return vec![InspectedServer { server, facts }];
        }
    };
    let ask = |node: Node| async move {
        let facts = facts(redis, &node, key, receives).await.map_err(failed);
        InspectedServer { server: node.server(), facts }
    };
    join_all(nodes.into_iter().map(ask)).await
}

async fn facts(
    redis: &Redis,
    node: &Node,
    key: Option<&LockKey>,
    receives: bool,
) -> Result<ServerFacts, RemoteError> {
    let time = async || {
        let reply = node.call(cmd("TIME"), redis.brief()).await?;
        let (seconds, micros): (u64, u64) = parsed(reply)?;
        Ok(Duration::from_secs(seconds) + Duration::from_micros(micros))
    };
    let clock = clock_facts(time).await;
    // The user may lack the rights to these, or the server may not know them. Locks need none.
    let ask = async |words: &[&str]| {
        let mut command = cmd(words[0]);
        command.arg(&words[1..]);
        node.call(command, redis.brief()).await.ok()
    };
    let info = node.call(cmd("INFO"), redis.brief()).await.and_then(parsed::<String>);
    let lines = info.iter().flat_map(|info| info.lines());
    let pairs = lines.filter_map(|line| line.split_once(':'));
    let mut settings: BTreeMap<String, String> =
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let no_info = info.err().map(|error| error.into_error(&LockKey::from("")));
    for name in CONFIG {
        let reply = ask(&["CONFIG", "GET", name]).await;
        let read: Option<BTreeMap<_, _>> = reply.and_then(|reply| parsed(reply).ok());
        settings.extend(read.unwrap_or_default());
    }
    let user = ask(&["ACL", "WHOAMI"]).await.and_then(|reply| parsed(reply).ok());
    let user = user.or_else(|| login(node));
    let is_here = |key: &&LockKey| redis.nodes.node_of(key).is_some_and(|has| has.is(node));
    let rights = node.rights(&[], &redis.needed(receives, true), redis.brief()).await?;
    let Rights { every_key, mut missing, evicts } = rights;
    // A user who may call no script is known to lack that.
    let tells_rights = evicts.is_some() || !missing.is_empty();
    let lacks = if tells_rights { Vec::new() } else { lacking(redis, node).await };
    if let (false, Some(_), Some(key)) = (every_key, evicts, key.filter(is_here)) {
        let needed = redis.needed(receives, every_key);
        let on_key = node.rights(slice::from_ref(key), &needed, redis.brief()).await?.missing;
        // A script is denied whose keys are.
        if on_key.iter().any(|right| right == "+eval") {
            missing.extend(keys(&pattern_around(redis, node, key.as_str()).await));
        } else {
            missing = on_key;
        }
    }
    // A node of a cluster without slots has no waiters.
    let gets_pushes = match slot_at(redis, node) {
        Some(slot) if receives => node.listen(slot, redis.budget()).await.unwrap_or(false),
        _ => true,
    };
    Ok(ServerFacts {
        user,
        missing_rights: tells_rights.then_some(missing),
        needs_key: tells_rights && !every_key && key.is_none(),
        lacks,
        gets_pushes,
        no_info,
        settings,
        ..clock
    })
}

/// What a server lacks that is only in part like Redis. Where waiters only lack something, they
/// poll.
async fn lacking(redis: &Redis, node: &Node) -> Vec<String> {
    let needed = redis.needed(false, true);
    // The first one is a pattern of channels.
    let names = needed.iter().skip(1).filter(|name| !name.contains('|'));
    let names: Vec<_> = names.map(String::as_str).collect();
    let mut info = cmd("COMMAND");
    info.arg("INFO").arg(&names);
    let known = node.call(info, redis.brief()).await.and_then(parsed::<Vec<Value>>);
    let known = known.unwrap_or_default();
    let unknown = names.iter().zip(known).filter(|(_, about)| *about == Value::Nil);
    let mut lacks: Vec<_> = unknown.map(|(name, _)| (*name).to_owned()).collect();
    let mut script = cmd("EVAL");
    script.arg("return 'text'").arg(0);
    let text = node.call(script, redis.brief()).await;
    if let Ok(Value::SimpleString(_)) = text {
        lacks.push("scripts that return a text, which arrives as a status".to_owned());
    }
    lacks
}

/// A pattern for the key, and for all keys with the same beginning if the user may write these.
async fn pattern_around(redis: &Redis, node: &Node, key: &str) -> String {
    let starts = key.char_indices().filter(|(_, c)| !c.is_alphanumeric());
    let starts: Vec<_> = starts.map(|(at, c)| &key[..at + c.len_utf8()]).collect();
    let call = MAY_WRITE.with(&[], &starts).by_text();
    let first = node.call(call, redis.brief()).await.and_then(parsed::<usize>).unwrap_or(0);
    match starts.get(first.wrapping_sub(1)) {
        Some(start) => escaped(start) + "*",
        None => escaped(key),
    }
}

/// The user that logs in at a node; `None` where a provider names it.
fn login(node: &Node) -> Option<String> {
    let settings = &node.connector().settings;
    let is_named = settings.credentials.is_none();
    is_named.then(|| settings.login.username().unwrap_or("default").to_owned())
}

/// A slot of a node, if it has any.
fn slot_at(redis: &Redis, node: &Node) -> Option<u16> {
    let Topology::Cluster(cluster) = &redis.nodes else { return Some(0) };
    (0..SLOTS).find(|slot| cluster.known(*slot).is_some_and(|has| has.is(node)))
}

/// Asks the nodes of a Redlock, each under the name that its URL has, and whether it votes.
pub(crate) async fn of_nodes(redlock: &Redlock, key: Option<&LockKey>) -> Vec<InspectedServer> {
    let nodes = &redlock.nodes;
    let ask = async |(nth, redis): (usize, &Redis)| {
        let vote = nodes.admit(nth).await;
        let mut servers = of_all(redis, key, false).await;
        for InspectedServer { server, facts } in &mut servers {
            server.clone_from(&nodes.names[nth]);
            if let (Ok(facts), Err(node_error)) = (facts, &vote) {
                facts.no_vote = Some((*node_error.error).clone());
            }
        }
        servers
    };
    join_all(nodes.all.iter().enumerate().map(ask)).await.into_iter().flatten().collect()
}
