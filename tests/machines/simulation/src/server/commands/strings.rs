//! Strings.

use super::super::call::Caller;
use super::super::core::Core;
use super::super::keyspace::Value;
use super::super::number::integer;
use super::super::reply::{Answer, Fault, Reply};
use super::{Command, is};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("get", 2, get),
    Command::new("set", -3, set).grows(),
    Command::new("getex", 2, getex).writes(),
    Command::new("getrange", 4, getrange),
];

fn get(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    Ok(Reply::or_null(core.keyspace.get::<Vec<u8>>(&words[1])?))
}

fn set(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let (key, value) = (&words[1], &words[2]);
    let (mut must_be, mut expires) = (None, None);
    let mut options = &words[3..];
    while let Some((option, rest)) = options.split_first() {
        options = match rest {
            rest if is(option, "nx") && must_be != Some(true) => {
                must_be = Some(false);
                rest
            }
            rest if is(option, "xx") && must_be != Some(false) => {
                must_be = Some(true);
                rest
            }
            [time, rest @ ..] if is(option, "px") => {
                expires = Some(time);
                rest
            }
            _ => return Err(Fault::SYNTAX),
        };
    }
    let now = core.keyspace.now;
    let invalid = || Fault::new("ERR invalid expire time in 'set' command");
    let expires = expires.map(|time| match integer(time)? {
        time @ 1.. => time.checked_add(now as i64).map(|at| at as u64).ok_or_else(invalid),
        _ => Err(invalid()),
    });
    let expires = expires.transpose()?;
    let is_there = core.keyspace.entry(key).is_some();
    if must_be.is_some_and(|must_be| must_be != is_there) {
        return Ok(Reply::Null);
    }
    core.keyspace.put(key, Value::String(value.clone()), expires);
    Ok(Reply::OK)
}

/// Without options it reads like GET, and counts as a write.
fn getex(core: &mut Core, caller: Caller, words: &[Vec<u8>]) -> Answer {
    get(core, caller, words)
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
