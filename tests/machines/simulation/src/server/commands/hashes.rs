//! Hashes.

use std::collections::BTreeMap;

use super::super::call::Caller;
use super::super::core::Core;
use super::super::reply::{Answer, Fault, Reply};
use super::Command;

type Hash = BTreeMap<Vec<u8>, Vec<u8>>;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("hget", 3, hget),
    Command::new("hset", -4, hset).grows(),
    Command::new("hsetnx", 4, hsetnx).grows(),
    Command::new("hdel", -3, hdel).writes(),
    Command::new("hmget", -3, hmget),
    Command::new("hgetall", 2, hgetall),
    Command::new("hkeys", 2, hkeys),
    Command::new("hexists", 3, hexists),
];

fn hget(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let hash = core.keyspace.get::<Hash>(&words[1])?;
    Ok(Reply::or_null(hash.and_then(|hash| hash.get(&words[2]))))
}

fn hset(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    if words.len() % 2 == 1 {
        return Err(Fault::new("ERR wrong number of arguments for 'hset' command"));
    }
    let new = core.keyspace.update_or_create(&words[1], |hash: &mut Hash| {
        let pairs = words[2..].chunks_exact(2);
        pairs.filter(|pair| hash.insert(pair[0].clone(), pair[1].clone()).is_none()).count()
    })?;
    Ok(Reply::int(new))
}

fn hsetnx(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let new = core.keyspace.update_or_create(&words[1], |hash: &mut Hash| {
        let new = !hash.contains_key(&words[2]);
        hash.entry(words[2].clone()).or_insert_with(|| words[3].clone());
        new
    })?;
    Ok(Reply::int(usize::from(new)))
}

fn hdel(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let removed = core.keyspace.update(&words[1], |hash: &mut Hash| {
        words[2..].iter().filter(|field| hash.remove(*field).is_some()).count()
    })?;
    Ok(Reply::int(removed.unwrap_or(0)))
}

fn hmget(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let hash = core.keyspace.get::<Hash>(&words[1])?;
    let value = |field| Reply::or_null(hash.and_then(|hash| hash.get(field)));
    Ok(Reply::Array(words[2..].iter().map(value).collect()))
}

fn hgetall(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let hash = core.keyspace.get::<Hash>(&words[1])?;
    let pairs = hash.into_iter().flatten();
    Ok(Reply::Map(pairs.map(|(field, value)| (Reply::bulk(field), Reply::bulk(value))).collect()))
}

fn hkeys(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let hash = core.keyspace.get::<Hash>(&words[1])?;
    Ok(Reply::Array(hash.into_iter().flatten().map(|(field, _)| Reply::bulk(field)).collect()))
}

fn hexists(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let hash = core.keyspace.get::<Hash>(&words[1])?;
    Ok(Reply::int(usize::from(hash.is_some_and(|hash| hash.contains_key(&words[2])))))
}
