//! Keys of any type, and when they expire.

use super::super::call::Caller;
use super::super::core::Core;
use super::super::number::integer;
use super::super::pattern::matches;
use super::super::reply::{Answer, Fault, Reply};
use super::{Command, is};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("del", -2, del).writes(),
    Command::new("exists", -2, exists),
    Command::new("type", 2, kind),
    Command::new("pexpire", 3, expire).writes(),
    Command::new("pexpireat", 3, expire).writes(),
    Command::new("pttl", 2, ttl),
    Command::new("pexpiretime", 2, ttl),
    Command::new("keys", 2, keys),
    Command::new("scan", -2, scan),
    Command::new("flushall", 1, flush).writes(),
];

fn del(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    Ok(Reply::int(words[1..].iter().filter(|key| core.keyspace.delete(key)).count()))
}

fn exists(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    Ok(Reply::int(words[1..].iter().filter(|key| core.keyspace.entry(key).is_some()).count()))
}

fn kind(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    Ok(Reply::status(core.keyspace.entry(&words[1]).map_or("none", |entry| entry.value.kind())))
}

fn expire(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let (name, from) = match is(&words[0], "pexpireat") {
        true => ("pexpireat", 0),
        false => ("pexpire", core.keyspace.now),
    };
    let invalid = || Fault::text(format!("ERR invalid expire time in '{name}' command"));
    let at = integer(&words[2])?.checked_add(from as i64).ok_or_else(invalid)?;
    let is_there = core.keyspace.entry(&words[1]).is_some();
    if is_there {
        core.keyspace.expire(&words[1], at.max(0) as u64);
    }
    Ok(Reply::Int(i64::from(is_there)))
}

fn ttl(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let Some(entry) = core.keyspace.entry(&words[1]) else { return Ok(Reply::Int(-2)) };
    let Some(at) = entry.expires else { return Ok(Reply::Int(-1)) };
    let from = if is(&words[0], "pttl") { core.keyspace.now } else { 0 };
    Ok(Reply::Int(at.saturating_sub(from) as i64))
}

fn keys(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let found = core.keyspace.iter().filter(|(key, _)| matches(&words[1], key));
    Ok(Reply::Array(found.map(|(key, _)| Reply::bulk(key)).collect()))
}

/// Returns all keys at once.
fn scan(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let cursor = std::str::from_utf8(&words[1]).ok().and_then(|cursor| cursor.parse::<u64>().ok());
    let Some(cursor) = cursor else { return Err(Fault::new("ERR invalid cursor")) };
    let (mut pattern, mut kind) = (None, None);
    for option in words[2..].chunks(2) {
        match option {
            [word, value] if is(word, "match") => pattern = Some(value),
            [word, value] if is(word, "type") => kind = Some(value),
            [word, value] if is(word, "count") => {
                if integer(value)? < 1 {
                    return Err(Fault::SYNTAX);
                }
            }
            _ => return Err(Fault::SYNTAX),
        }
    }
    let found = core.keyspace.iter().filter(|(key, entry)| {
        cursor == 0
            && pattern.is_none_or(|pattern| matches(pattern, key))
            && kind.is_none_or(|kind| is(kind, entry.value.kind()))
    });
    let found = found.map(|(key, _)| Reply::bulk(key)).collect();
    Ok(Reply::Array(vec![Reply::bulk(b"0"), Reply::Array(found)]))
}

fn flush(core: &mut Core, _: Caller, _: &[Vec<u8>]) -> Answer {
    core.keyspace.clear();
    Ok(Reply::OK)
}
