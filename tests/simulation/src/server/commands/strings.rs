//! Strings.

use super::super::call::Caller;
use super::super::core::Core;
use super::super::keyspace::Value;
use super::super::number::integer;
use super::super::reply::{Answer, Fault, Reply};
use super::keys::{Unit, expiry};
use super::{Command, is};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("get", 2, get),
    Command::new("set", -3, set).grows(),
    Command::new("getex", -2, getex).writes(),
    Command::new("getdel", 2, getdel).writes(),
    Command::new("getrange", 4, getrange),
    Command::new("strlen", 2, strlen),
    Command::new("mget", -2, mget),
    Command::new("incr", 2, incr).grows(),
    Command::new("incrby", 3, incr).grows(),
    Command::new("append", 3, append).grows(),
];

/// Reads the option of an expiry at a place in a command, if there is one.
fn expiry_option(core: &Core, words: &[Vec<u8>], at: usize) -> Result<Option<u64>, Fault> {
    let (unit, relative) = match &words[at] {
        word if is(word, "ex") => (Unit::Seconds, true),
        word if is(word, "px") => (Unit::Milliseconds, true),
        word if is(word, "exat") => (Unit::Seconds, false),
        word if is(word, "pxat") => (Unit::Milliseconds, false),
        _ => return Ok(None),
    };
    let amount = words.get(at + 1).ok_or(Fault::SYNTAX)?;
    let name = String::from_utf8_lossy(&words[0]).to_lowercase();
    let invalid = || Fault::text(format!("ERR invalid expire time in '{name}' command"));
    let amount = integer(amount)?;
    if amount <= 0 {
        return Err(invalid());
    }
    let from = if relative { core.keyspace.now } else { 0 };
    let at = expiry(amount, unit, from).ok_or_else(invalid)?;
    Ok(Some(at as u64))
}

fn get(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    Ok(Reply::or_null(core.keyspace.get::<Vec<u8>>(&words[1])?))
}

fn set(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let (key, value) = (&words[1], &words[2]);
    let (mut must_be, mut keeps_ttl, mut returns_old, mut expiring) = (None, false, false, None);
    let mut at = 3;
    while at < words.len() {
        match &words[at] {
            word if is(word, "nx") && must_be != Some(true) => must_be = Some(false),
            word if is(word, "xx") && must_be != Some(false) => must_be = Some(true),
            word if is(word, "get") => returns_old = true,
            word if is(word, "keepttl") && expiring.is_none() => keeps_ttl = true,
            word if ["ex", "px", "exat", "pxat"].iter().any(|option| is(word, option))
                && !keeps_ttl
                && expiring.is_none()
                && at + 1 < words.len() =>
            {
                expiring = Some(at);
                at += 1;
            }
            _ => return Err(Fault::SYNTAX),
        }
        at += 1;
    }
    let expires = match expiring {
        Some(at) => expiry_option(core, words, at)?,
        None => None,
    };
    let old = match returns_old {
        true => Some(Reply::or_null(core.keyspace.get::<Vec<u8>>(key)?)),
        false => None,
    };
    let there = core.keyspace.entry(key);
    if must_be.is_some_and(|must_be| must_be != there.is_some()) {
        return Ok(old.unwrap_or(Reply::Null));
    }
    let kept = there.and_then(|entry| entry.expires).filter(|_| keeps_ttl);
    if expires.is_some_and(|at| at <= core.keyspace.now) {
        core.keyspace.delete(key);
    } else {
        core.keyspace.put(key, Value::String(value.clone()), expires.or(kept));
    }
    Ok(old.unwrap_or(Reply::OK))
}

fn getex(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let key = &words[1];
    let is_expiry =
        |word: &Vec<u8>| ["ex", "px", "exat", "pxat"].iter().any(|option| is(word, option));
    match &words[2..] {
        [] => {}
        [word] if is(word, "persist") => {}
        [word, _] if is_expiry(word) => {}
        _ => return Err(Fault::SYNTAX),
    }
    let Some(value) = core.keyspace.get::<Vec<u8>>(key)? else { return Ok(Reply::Null) };
    let reply = Reply::Bulk(value.clone());
    if words.len() > 2 {
        let expires = expiry_option(core, words, 2)?;
        core.keyspace.expire(key, expires);
    }
    Ok(reply)
}

fn getdel(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let reply = Reply::or_null(core.keyspace.get::<Vec<u8>>(&words[1])?);
    core.keyspace.delete(&words[1]);
    Ok(reply)
}

fn getrange(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let (start, end) = (integer(&words[2])?, integer(&words[3])?);
    let Some(value) = core.keyspace.get::<Vec<u8>>(&words[1])? else {
        return Ok(Reply::bulk(b""));
    };
    let length = value.len() as i64;
    if start < 0 && end < 0 && start > end {
        return Ok(Reply::bulk(b""));
    }
    let from_end = |index: i64| if index < 0 { (length + index).max(0) } else { index };
    let (start, end) = (from_end(start), from_end(end).min(length - 1));
    if start > end || length == 0 {
        return Ok(Reply::bulk(b""));
    }
    Ok(Reply::bulk(&value[start as usize..=end as usize]))
}

fn strlen(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    Ok(Reply::int(core.keyspace.get::<Vec<u8>>(&words[1])?.map_or(0, Vec::len)))
}

fn mget(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let value = |key: &Vec<u8>| Reply::or_null(core.keyspace.get::<Vec<u8>>(key).ok().flatten());
    Ok(Reply::Array(words[1..].iter().map(value).collect()))
}

fn incr(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let by = words.get(2).map_or(Ok(1), |by| integer(by))?;
    let before = core.keyspace.get::<Vec<u8>>(&words[1])?.map_or(Ok(0), |text| integer(text))?;
    let overflow = Fault::new("ERR increment or decrement would overflow");
    let after = before.checked_add(by).ok_or(overflow)?;
    core.keyspace.update_or_create(&words[1], |value: &mut Vec<u8>| {
        *value = after.to_string().into_bytes();
    })?;
    Ok(Reply::Int(after))
}

fn append(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let length = core.keyspace.update_or_create(&words[1], |value: &mut Vec<u8>| {
        value.extend_from_slice(&words[2]);
        value.len()
    })?;
    Ok(Reply::int(length))
}
