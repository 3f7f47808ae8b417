//! Channels.

use super::super::call::Caller;
use super::super::connection::ConnectionId;
use super::super::core::Core;
use super::super::reply::{Answer, Fault, Reply};
use super::{Command, is};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("publish", 3, publish),
    Command::new("subscribe", -2, subscribe).not_in_script().in_subscription(),
    Command::new("unsubscribe", -1, unsubscribe).not_in_script().in_subscription(),
    Command::new("pubsub", -2, pubsub).with_subcommands(),
];

fn publish(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let subscribers = core.channels.subscribers(&words[1]).to_vec();
    let push = [b"message", &words[1][..], &words[2][..]].map(Reply::bulk);
    let push = Reply::Push(push.into());
    subscribers.iter().for_each(|subscriber| core.send(*subscriber, &push));
    Ok(Reply::int(subscribers.len()))
}

fn subscribe(core: &mut Core, caller: Caller, words: &[Vec<u8>]) -> Answer {
    for channel in &words[1..] {
        core.channels.subscribe(channel, caller.id);
        core.connections.entry(caller.id).or_default().channels.insert(channel.clone());
        core.confirm(caller.id, "subscribe", Reply::bulk(channel));
    }
    Ok(Reply::None)
}

fn unsubscribe(core: &mut Core, caller: Caller, words: &[Vec<u8>]) -> Answer {
    let mine = &core.connections.entry(caller.id).or_default().channels;
    let channels = match &words[1..] {
        [] => mine.iter().cloned().collect(),
        some => some.to_vec(),
    };
    if channels.is_empty() {
        core.confirm(caller.id, "unsubscribe", Reply::Null);
    }
    for channel in &channels {
        core.channels.unsubscribe(channel, caller.id);
        core.connections.entry(caller.id).or_default().channels.remove(channel);
        core.confirm(caller.id, "unsubscribe", Reply::bulk(channel));
    }
    Ok(Reply::None)
}

fn pubsub(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    if !is(&words[1], "numsub") {
        return Err(core.unknown_subcommand("pubsub", &words[1]));
    }
    let count = |channel: &Vec<u8>| {
        [Reply::bulk(channel), Reply::int(core.channels.subscribers(channel).len())]
    };
    Ok(Reply::Array(words[2..].iter().flat_map(count).collect()))
}

impl Core {
    /// Confirms a change of a client's subscriptions, with their number.
    fn confirm(&mut self, id: ConnectionId, name: &str, channel: Reply) {
        let count = self.connections.get(&id).map_or(0, |client| client.channels.len());
        self.send(id, &Reply::Push(vec![Reply::bulk(name), channel, Reply::int(count)]));
    }

    /// The error for a subcommand that does not exist, or is not simulated.
    pub(super) fn unknown_subcommand(&mut self, command: &str, sub: &[u8]) -> Fault {
        let sub = String::from_utf8_lossy(sub);
        let upper = command.to_uppercase();
        let text = format!("ERR unknown subcommand '{sub}'. Try {upper} HELP.");
        self.not_simulated(&format!("{command} {sub}"), Fault::text(text))
    }
}
