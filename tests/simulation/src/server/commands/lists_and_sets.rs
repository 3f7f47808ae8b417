//! Lists and sets, which locks do not use: other programs keep them under the key of a lock.

use std::collections::{BTreeSet, VecDeque};

use super::super::call::Caller;
use super::super::core::Core;
use super::super::number::integer;
use super::super::reply::{Answer, Reply};
use super::sorted_sets::ranks;
use super::{Command, is};

type List = VecDeque<Vec<u8>>;
type Set = BTreeSet<Vec<u8>>;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("lpush", -3, push).grows(),
    Command::new("rpush", -3, push).grows(),
    Command::new("llen", 2, llen),
    Command::new("lrange", 4, lrange),
    Command::new("sadd", -3, sadd).grows(),
    Command::new("srem", -3, srem).writes(),
    Command::new("scard", 2, scard),
    Command::new("smembers", 2, smembers),
    Command::new("sismember", 3, sismember),
];

fn push(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let front = is(&words[0], "lpush");
    let length = core.keyspace.update_or_create(&words[1], |list: &mut List| {
        for item in &words[2..] {
            if front { list.push_front(item.clone()) } else { list.push_back(item.clone()) }
        }
        list.len()
    })?;
    Ok(Reply::int(length))
}

fn llen(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    Ok(Reply::int(core.keyspace.get::<List>(&words[1])?.map_or(0, VecDeque::len)))
}

fn lrange(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let (first, last) = (integer(&words[2])?, integer(&words[3])?);
    let Some(list) = core.keyspace.get::<List>(&words[1])? else {
        return Ok(Reply::Array(Vec::new()));
    };
    Ok(Reply::Array(list.range(ranks(first, last, list.len())).map(Reply::bulk).collect()))
}

fn sadd(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let new = core.keyspace.update_or_create(&words[1], |set: &mut Set| {
        words[2..].iter().filter(|member| set.insert((*member).clone())).count()
    })?;
    Ok(Reply::int(new))
}

fn srem(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let removed = core.keyspace.update(&words[1], |set: &mut Set| {
        words[2..].iter().filter(|member| set.remove(*member)).count()
    })?;
    Ok(Reply::int(removed.unwrap_or(0)))
}

fn scard(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    Ok(Reply::int(core.keyspace.get::<Set>(&words[1])?.map_or(0, BTreeSet::len)))
}

fn smembers(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let set = core.keyspace.get::<Set>(&words[1])?;
    Ok(Reply::Set(set.into_iter().flatten().map(Reply::bulk).collect()))
}

fn sismember(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let set = core.keyspace.get::<Set>(&words[1])?;
    Ok(Reply::int(usize::from(set.is_some_and(|set| set.contains(&words[2])))))
}
