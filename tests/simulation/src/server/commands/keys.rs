//! Keys of any type, and when they expire.

use super::super::call::Caller;
use super::super::core::Core;
use super::super::number::integer;
use super::super::pattern::matches;
use super::super::reply::{Answer, Fault, Reply};
use super::{Command, is};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("del", -2, del).writes(),
    Command::new("unlink", -2, del).writes(),
    Command::new("exists", -2, exists),
    Command::new("type", 2, kind),
    Command::new("expire", -3, expire).writes(),
    Command::new("pexpire", -3, expire).writes(),
    Command::new("expireat", -3, expire).writes(),
    Command::new("pexpireat", -3, expire).writes(),
    Command::new("persist", 2, persist).writes(),
    Command::new("ttl", 2, ttl),
    Command::new("pttl", 2, ttl),
    Command::new("expiretime", 2, ttl),
    Command::new("pexpiretime", 2, ttl),
    Command::new("keys", 2, keys),
    Command::new("scan", -2, scan),
    Command::new("dbsize", 1, dbsize),
    Command::new("flushall", -1, flush).writes(),
    Command::new("flushdb", -1, flush).writes(),
];

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
}

/// The time in milliseconds that is so much later than another one, if it can be written.
pub(super) fn expiry(amount: i64, unit: Unit, from: u64) -> Option<i64> {
    let milliseconds = if unit == Unit::Seconds { amount.checked_mul(1_000)? } else { amount };
    milliseconds.checked_add(from as i64)
}

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
    let name = String::from_utf8_lossy(&words[0]).to_lowercase();
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for word in &words[3..] {
        match word {
            word if is(word, "nx") => nx = true,
            word if is(word, "xx") => xx = true,
            word if is(word, "gt") => gt = true,
            word if is(word, "lt") => lt = true,
            other => {
                let other = String::from_utf8_lossy(other);
                return Err(Fault::text(format!("ERR Unsupported option {other}")));
            }
        }
    }
    if nx && (xx || gt || lt) {
        return Err(Fault::new(
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        ));
    }
    if gt && lt {
        return Err(Fault::new("ERR GT and LT options at the same time are not compatible"));
    }
    let unit = if name.starts_with('p') { Unit::Milliseconds } else { Unit::Seconds };
    let from = if name.ends_with("at") { 0 } else { core.keyspace.now };
    let invalid = || Fault::text(format!("ERR invalid expire time in '{name}' command"));
    let at = expiry(integer(&words[2])?, unit, from).ok_or_else(invalid)?;
    let Some(entry) = core.keyspace.entry(&words[1]) else { return Ok(Reply::Int(0)) };
    let before = entry.expires.map(|before| before as i64);
    let refused = nx && before.is_some()
        || xx && before.is_none()
        || gt && before.is_none_or(|before| at <= before)
        || lt && before.is_some_and(|before| at >= before);
    if refused {
        return Ok(Reply::Int(0));
    }
    core.keyspace.expire(&words[1], Some(at.max(0) as u64));
    Ok(Reply::Int(1))
}

fn persist(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let expires = core.keyspace.entry(&words[1]).is_some_and(|entry| entry.expires.is_some());
    if expires {
        core.keyspace.expire(&words[1], None);
    }
    Ok(Reply::Int(i64::from(expires)))
}

fn ttl(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let Some(entry) = core.keyspace.entry(&words[1]) else { return Ok(Reply::Int(-2)) };
    let Some(at) = entry.expires else { return Ok(Reply::Int(-1)) };
    let name = words[0].to_ascii_lowercase();
    let from = if name.ends_with(b"time") { 0 } else { core.keyspace.now };
    let left = at.saturating_sub(from) as i64;
    Ok(Reply::Int(if name.starts_with(b"p") { left } else { (left + 500) / 1_000 }))
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

fn dbsize(core: &mut Core, _: Caller, _: &[Vec<u8>]) -> Answer {
    Ok(Reply::int(core.keyspace.iter().count()))
}

fn flush(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    match &words[1..] {
        [] => {}
        [how] if is(how, "sync") || is(how, "async") => {}
        _ => return Err(Fault::SYNTAX),
    }
    core.keyspace.clear();
    Ok(Reply::OK)
}
