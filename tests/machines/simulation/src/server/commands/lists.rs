//! Lists, which locks do not use: other programs keep them under the key of a lock.

use std::collections::VecDeque;

use super::super::call::Caller;
use super::super::core::Core;
use super::super::number::integer;
use super::super::reply::{Answer, Reply};
use super::Command;
use super::sorted_sets::ranks;

type List = VecDeque<Vec<u8>>;

pub(super) const COMMANDS: &[Command] =
    &[Command::new("lpush", -3, lpush).grows(), Command::new("lrange", 4, lrange)];

fn lpush(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let length = core.keyspace.update_or_create(&words[1], |list: &mut List| {
        words[2..].iter().for_each(|item| list.push_front(item.clone()));
        list.len()
    })?;
    Ok(Reply::int(length))
}

fn lrange(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let (first, last) = (integer(&words[2])?, integer(&words[3])?);
    let Some(list) = core.keyspace.get::<List>(&words[1])? else {
        return Ok(Reply::Array(Vec::new()));
    };
    Ok(Reply::Array(list.range(ranks(first, last, list.len())).map(Reply::bulk).collect()))
}
