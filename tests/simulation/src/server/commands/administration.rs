//! The server itself: its clock, its settings, its user's rights.

use super::super::call::Caller;
use super::super::core::Core;
use super::super::pattern::matches;
use super::super::reply::{Answer, Fault, Reply};
use super::{Command, command, is};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("time", 1, time),
    Command::new("info", -1, info),
    Command::new("config", -2, config).not_in_script().with_subcommands(),
    Command::new("acl", -2, acl).not_in_script().with_subcommands(),
    Command::new("role", 1, role).not_in_script(),
];

fn time(core: &mut Core, _: Caller, _: &[Vec<u8>]) -> Answer {
    let (seconds, micros) = (core.now.as_secs(), core.now.subsec_micros());
    Ok(Reply::Array(vec![Reply::bulk(seconds.to_string()), Reply::bulk(micros.to_string())]))
}

/// Only what the runtime reads.
fn info(core: &mut Core, _: Caller, _: &[Vec<u8>]) -> Answer {
    let (run_id, uptime) = (&core.run_id, core.now.saturating_sub(core.started).as_secs());
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
        (sub, []) if is(sub, "whoami") => Ok(Reply::bulk("default")),
        (sub, _) => Err(core.unknown_subcommand("acl", sub)),
    }
}

fn role(_: &mut Core, _: Caller, _: &[Vec<u8>]) -> Answer {
    Ok(Reply::Array(vec![Reply::bulk("master"), Reply::Int(0), Reply::Array(Vec::new())]))
}
