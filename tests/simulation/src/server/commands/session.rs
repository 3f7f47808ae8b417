//! What a client and the server agree on.

use super::super::call::Caller;
use super::super::connection::Protocol;
use super::super::core::Core;
use super::super::number::integer;
use super::super::reply::{Answer, Fault, Reply};
use super::{Command, is};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("ping", -1, ping).in_subscription(),
    Command::new("echo", 2, echo),
    Command::new("hello", -1, hello).not_in_script(),
    Command::new("select", 2, select),
    Command::new("client", -2, client).not_in_script().with_subcommands(),
    Command::new("quit", -1, quit).not_in_script().in_subscription(),
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

fn echo(_: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    Ok(Reply::bulk(&words[1]))
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
    let mut options = words.get(2..).unwrap_or_default();
    let mut name = None;
    while let Some((option, rest)) = options.split_first() {
        options = match rest {
            [_user, _password, rest @ ..] if is(option, "auth") => rest,
            [given, rest @ ..] if is(option, "setname") => {
                name = Some(given.clone());
                rest
            }
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(Fault::text(format!("ERR Syntax error in HELLO option '{option}'")));
            }
        };
    }
    let connection = core.connections.entry(caller.id).or_default();
    connection.protocol = protocol;
    if let Some(name) = name {
        connection.name = name;
    }
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

fn select(_: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    match integer(&words[1])? {
        0 => Ok(Reply::OK),
        _ => Err(Fault::new("ERR DB index is out of range")),
    }
}

fn client(core: &mut Core, caller: Caller, words: &[Vec<u8>]) -> Answer {
    let connection = core.connections.entry(caller.id).or_default();
    match (&words[1], &words[2..]) {
        (sub, []) if is(sub, "id") => Ok(Reply::Int(caller.id.0 as i64)),
        (sub, []) if is(sub, "getname") => Ok(match connection.name.is_empty() {
            true => Reply::Null,
            false => Reply::bulk(&connection.name),
        }),
        (sub, [name]) if is(sub, "setname") => {
            connection.name = name.clone();
            Ok(Reply::OK)
        }
        // Came with Redis 7.2; clients send it without a look at the reply.
        (sub, _) if is(sub, "setinfo") => {
            let sub = String::from_utf8_lossy(sub);
            Err(Fault::text(format!("ERR unknown subcommand '{sub}'. Try CLIENT HELP.")))
        }
        (sub, _) => Err(core.unknown_subcommand("client", sub)),
    }
}

fn quit(core: &mut Core, caller: Caller, _: &[Vec<u8>]) -> Answer {
    core.send(caller.id, &Reply::OK);
    core.close(caller.id);
    Ok(Reply::None)
}
