//! Channels.

use super::super::call::Caller;
use super::super::connection::ConnectionId;
use super::super::core::Core;
use super::super::pattern::matches;
use super::super::pubsub::Channels;
use super::super::reply::{Answer, Fault, Reply};
use super::{Command, is};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("publish", 3, publish),
    Command::new("spublish", 3, spublish),
    Command::new("subscribe", -2, subscribe).not_in_script().in_subscription(),
    Command::new("ssubscribe", -2, ssubscribe).not_in_script().in_subscription(),
    Command::new("unsubscribe", -1, unsubscribe).not_in_script().in_subscription(),
    Command::new("sunsubscribe", -1, sunsubscribe).not_in_script().in_subscription(),
    Command::new("pubsub", -2, pubsub).with_subcommands(),
];

/// The two kinds of channels: of all, and of a slot.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Global,
    Shard,
}

impl Core {
    fn channels(&mut self, kind: Kind) -> &mut Channels {
        if kind == Kind::Global { &mut self.channels } else { &mut self.shard_channels }
    }

    fn publish(&mut self, kind: Kind, channel: &[u8], message: &[u8]) -> Reply {
        let subscribers = self.channels(kind).subscribers(channel).to_vec();
        let name = if kind == Kind::Global { "message" } else { "smessage" };
        let push = [name.as_bytes(), channel, message].map(Reply::bulk);
        let push = Reply::Push(push.into());
        for subscriber in &subscribers {
            self.send(*subscriber, &push);
        }
        Reply::int(subscribers.len())
    }

    fn subscribe(&mut self, kind: Kind, id: ConnectionId, channels: &[Vec<u8>]) -> Answer {
        for channel in channels {
            self.channels(kind).subscribe(channel, id);
            let mine = self.subscriptions(kind, id);
            mine.insert(channel.clone());
            let count = mine.len();
            let name = if kind == Kind::Global { "subscribe" } else { "ssubscribe" };
            self.send(id, &confirmation(name, Reply::bulk(channel), count));
        }
        Ok(Reply::None)
    }

    fn unsubscribe(&mut self, kind: Kind, id: ConnectionId, channels: &[Vec<u8>]) -> Answer {
        let name = if kind == Kind::Global { "unsubscribe" } else { "sunsubscribe" };
        let channels = match channels {
            [] => self.subscriptions(kind, id).iter().cloned().collect(),
            some => some.to_vec(),
        };
        if channels.is_empty() {
            self.send(id, &confirmation(name, Reply::Null, 0));
        }
        for channel in &channels {
            self.channels(kind).unsubscribe(channel, id);
            let mine = self.subscriptions(kind, id);
            mine.remove(channel);
            let count = mine.len();
            self.send(id, &confirmation(name, Reply::bulk(channel), count));
        }
        Ok(Reply::None)
    }

    fn subscriptions(
        &mut self,
        kind: Kind,
        id: ConnectionId,
    ) -> &mut std::collections::BTreeSet<Vec<u8>> {
        let connection = self.connections.entry(id).or_default();
        match kind {
            Kind::Global => &mut connection.channels,
            Kind::Shard => &mut connection.shard_channels,
        }
    }
}

fn confirmation(name: &str, channel: Reply, count: usize) -> Reply {
    Reply::Push(vec![Reply::bulk(name), channel, Reply::int(count)])
}

fn publish(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    Ok(core.publish(Kind::Global, &words[1], &words[2]))
}

fn spublish(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    Ok(core.publish(Kind::Shard, &words[1], &words[2]))
}

fn subscribe(core: &mut Core, caller: Caller, words: &[Vec<u8>]) -> Answer {
    core.subscribe(Kind::Global, caller.id, &words[1..])
}

fn ssubscribe(core: &mut Core, caller: Caller, words: &[Vec<u8>]) -> Answer {
    core.subscribe(Kind::Shard, caller.id, &words[1..])
}

fn unsubscribe(core: &mut Core, caller: Caller, words: &[Vec<u8>]) -> Answer {
    core.unsubscribe(Kind::Global, caller.id, &words[1..])
}

fn sunsubscribe(core: &mut Core, caller: Caller, words: &[Vec<u8>]) -> Answer {
    core.unsubscribe(Kind::Shard, caller.id, &words[1..])
}

fn pubsub(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let counts = |channels: &Channels| {
        let count = |channel: &Vec<u8>| {
            [Reply::bulk(channel), Reply::int(channels.subscribers(channel).len())]
        };
        Ok(Reply::Array(words[2..].iter().flat_map(count).collect()))
    };
    let names = |channels: &Channels| {
        let wanted = |name: &&[u8]| words.get(2).is_none_or(|pattern| matches(pattern, name));
        Ok(Reply::Array(channels.names().filter(wanted).map(Reply::bulk).collect()))
    };
    match (&words[1], words.len()) {
        (sub, _) if is(sub, "numsub") => counts(&core.channels),
        (sub, _) if is(sub, "shardnumsub") => counts(&core.shard_channels),
        (sub, 2 | 3) if is(sub, "channels") => names(&core.channels),
        (sub, 2 | 3) if is(sub, "shardchannels") => names(&core.shard_channels),
        (sub, 2) if is(sub, "numpat") => Ok(Reply::Int(0)),
        _ => Err(core.unknown_subcommand("pubsub", &words[1])),
    }
}

impl Core {
    /// The error for a subcommand that does not exist, or is not simulated.
    pub(super) fn unknown_subcommand(&mut self, command: &str, sub: &[u8]) -> Fault {
        let sub = String::from_utf8_lossy(sub);
        let upper = command.to_uppercase();
        let text = format!("ERR unknown subcommand '{sub}'. Try {upper} HELP.");
        self.not_simulated(&format!("{command} {sub}"), Fault::text(text))
    }
}
