//! The server itself: its clock, its settings, its user's rights.

use std::time::Duration;

use sha1_smol::Sha1;

use super::super::call::Caller;
use super::super::core::Core;
use super::super::number::integer;
use super::super::pattern::matches;
use super::super::replication::Waiting;
use super::super::reply::{Answer, Fault, Reply};
use super::{Command, command, is};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("time", 1, time),
    Command::new("info", -1, info),
    Command::new("config", -2, config).not_in_script().with_subcommands(),
    Command::new("acl", -2, acl).not_in_script().with_subcommands(),
    Command::new("role", 1, role).not_in_script(),
    Command::new("wait", 3, wait).not_in_script(),
];

fn time(core: &mut Core, _: Caller, _: &[Vec<u8>]) -> Answer {
    let (seconds, micros) = (core.now.as_secs(), core.now.subsec_micros());
    Ok(Reply::Array(vec![Reply::bulk(seconds.to_string()), Reply::bulk(micros.to_string())]))
}

/// Only what the runtime reads.
fn info(core: &mut Core, _: Caller, _: &[Vec<u8>]) -> Answer {
    let run_id = Sha1::from(format!("{} {}", core.seed, core.starts)).digest();
    let uptime = core.now.saturating_sub(core.used_since.unwrap_or(core.now)).as_secs();
    let text = format!(
        "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:{run_id}\r\n\
         uptime_in_seconds:{uptime}\r\n"
    );
    Ok(Reply::Verbatim(text.into_bytes()))
}

fn config(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    match (&words[1], &words[2..]) {
        (sub, pairs @ [_, _, ..]) if is(sub, "set") && pairs.len() % 2 == 0 => {
            for pair in pairs.chunks_exact(2) {
                let name = String::from_utf8_lossy(&pair[0]).to_lowercase();
                core.settings.insert(name, pair[1].clone());
            }
            Ok(Reply::OK)
        }
        (sub, patterns @ [_, ..]) if is(sub, "get") => {
            let wanted = |name: &str| patterns.iter().any(|p| matches(p, name.as_bytes()));
            let found = core.settings.iter().filter(|(name, _)| wanted(name));
            Ok(Reply::Map(found.map(|(n, v)| (Reply::bulk(n), Reply::bulk(v))).collect()))
        }
        (sub, _) => Err(core.unknown_subcommand("config", sub)),
    }
}

fn acl(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    match (&words[1], &words[2..]) {
        (sub, [user, rules @ ..]) if is(sub, "setuser") && is(user, "default") => {
            for rule in rules {
                let rule = String::from_utf8_lossy(rule).to_lowercase();
                let (allows, name) = rule.split_at(1);
                let known = command(name.split('|').next().unwrap_or_default().as_bytes());
                match (allows, known) {
                    ("+", Some(_)) => drop(core.denied.remove(name)),
                    ("-", Some(_)) => drop(core.denied.insert(name.to_owned())),
                    _ => {
                        let text = format!("ERR Error in ACL SETUSER modifier '{rule}'");
                        return Err(core.not_simulated(&text, Fault::text(text.clone())));
                    }
                }
            }
            Ok(Reply::OK)
        }
        (sub, _) => Err(core.unknown_subcommand("acl", sub)),
    }
}

fn role(core: &mut Core, _: Caller, _: &[Vec<u8>]) -> Answer {
    let offset = Reply::Int(core.replication.offset as i64);
    if let Some((host, port)) = &core.replication.primary {
        let port = Reply::Int(i64::from(*port));
        let (role, state) = (Reply::bulk("slave"), Reply::bulk("connected"));
        return Ok(Reply::Array(vec![role, Reply::bulk(host), port, state, offset]));
    }
    let replicas = core.replication.replicas.iter().map(|(id, offset)| {
        let texts = [format!("replica-{}", id.0), "6379".to_owned(), offset.to_string()];
        Reply::Array(texts.map(Reply::bulk).into())
    });
    Ok(Reply::Array(vec![Reply::bulk("master"), offset, Reply::Array(replicas.collect())]))
}

fn wait(core: &mut Core, caller: Caller, words: &[Vec<u8>]) -> Answer {
    if core.replication.is_replica() {
        return Err(Fault::new(
            "ERR WAIT cannot be used with replica instances. Please also note that since Redis \
             4.0 if a replica is configured to be writable (which is not the default) writes to \
             replicas are just local and are not propagated.",
        ));
    }
    let replicas = integer(&words[1])?;
    let timeout = integer(&words[2])
        .map_err(|_| Fault::new("ERR timeout is not an integer or out of range"))?;
    let Ok(timeout) = u64::try_from(timeout) else {
        return Err(Fault::new("ERR timeout is negative"));
    };
    let until = (timeout > 0).then(|| core.now + Duration::from_millis(timeout));
    let connection = core.connections.entry(caller.id).or_default();
    let offset = connection.offset;
    let acknowledged = core.replication.acknowledged(offset);
    if acknowledged as i64 >= replicas {
        return Ok(Reply::int(acknowledged));
    }
    connection.waiting = Some(Waiting { replicas: replicas as usize, offset, until });
    Ok(Reply::None)
}
