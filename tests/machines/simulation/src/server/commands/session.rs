//! What a client and the server agree on.

use super::super::call::Caller;
use super::super::connection::Protocol;
use super::super::core::Core;
use super::super::number::integer;
use super::super::reply::{Answer, Fault, Reply};
use super::{Command, is};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("ping", -1, ping).in_subscription(),
    Command::new("hello", -1, hello).not_in_script(),
    Command::new("client", -2, client).not_in_script().with_subcommands(),
];

fn ping(core: &mut Core, caller: Caller, words: &[Vec<u8>]) -> Answer {
    if words.len() > 2 {
        return Err(Fault::new("ERR wrong number of arguments for 'ping' command"));
    }
    let subscribed = core.connections.get(&caller.id).is_some_and(|c| c.is_subscribed());
    if subscribed && caller.protocol == Protocol::Resp2 {
        let text = words.get(1).map_or(Reply::bulk(b""), Reply::bulk);
        return Ok(Reply::Array(vec![Reply::bulk(b"pong"), text]));
    }
    Ok(words.get(1).map_or(Reply::status("PONG"), Reply::bulk))
}

fn hello(core: &mut Core, caller: Caller, words: &[Vec<u8>]) -> Answer {
    let mut protocol = caller.protocol;
    if let Some(version) = words.get(1) {
        let version = integer(version)
            .map_err(|_| Fault::new("ERR Protocol version is not an integer or out of range"))?;
        protocol = match version {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return Err(Fault::new("NOPROTO unsupported protocol version")),
        };
    }
    if let Some(option) = words.get(2) {
        let option = String::from_utf8_lossy(option);
        return Err(Fault::text(format!("ERR Syntax error in HELLO option '{option}'")));
    }
    core.connections.entry(caller.id).or_default().protocol = protocol;
    let text = |name: &str, text: &str| (Reply::bulk(name), Reply::bulk(text));
    let number = |name: &str, number: i64| (Reply::bulk(name), Reply::Int(number));
    Ok(Reply::Map(vec![
        text("server", "redis"),
        text("version", "7.0.15"),
        number("proto", if protocol == Protocol::Resp3 { 3 } else { 2 }),
        number("id", caller.id.0 as i64),
        text("mode", "standalone"),
        text("role", "master"),
        (Reply::bulk("modules"), Reply::Array(Vec::new())),
    ]))
}

fn client(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    // SETINFO came with Redis 7.2; clients send it without a look at the reply.
    if is(&words[1], "setinfo") {
        let sub = String::from_utf8_lossy(&words[1]);
        return Err(Fault::text(format!("ERR unknown subcommand '{sub}'. Try CLIENT HELP.")));
    }
    Err(core.unknown_subcommand("client", &words[1]))
}
