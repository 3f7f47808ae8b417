//! Sorted sets.

use std::ops::Range;

use super::super::call::Caller;
use super::super::connection::Protocol;
use super::super::core::Core;
use super::super::number::{double, integer};
use super::super::reply::{Answer, Fault, Reply};
use super::super::sorted_set::{Bound, SortedSet};
use super::{Command, is};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("zadd", -4, zadd).grows(),
    Command::new("zrem", -3, zrem).writes(),
    Command::new("zcard", 2, zcard),
    Command::new("zscore", 3, zscore),
    Command::new("zrank", 3, zrank),
    Command::new("zcount", 4, zcount),
    Command::new("zrange", -4, zrange),
    Command::new("zrangebyscore", -4, zrangebyscore),
    Command::new("zremrangebyscore", 4, zremrangebyscore).writes(),
    Command::new("zpopmin", -2, zpop).writes(),
    Command::new("zpopmax", -2, zpop).writes(),
];

fn zadd(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let is_option = |word: &&Vec<u8>| ["nx", "xx", "gt"].iter().any(|option| is(word, option));
    let options = words[2..].iter().take_while(is_option).count();
    let (options, pairs) = words[2..].split_at(options);
    let has = |name| options.iter().any(|option| is(option, name));
    let (nx, xx, gt) = (has("nx"), has("xx"), has("gt"));
    if pairs.is_empty() || pairs.len() % 2 == 1 {
        return Err(Fault::SYNTAX);
    }
    if nx && xx {
        return Err(Fault::new("ERR XX and NX options at the same time are not compatible"));
    }
    if nx && gt {
        let text = "ERR GT, LT, and/or NX options at the same time are not compatible";
        return Err(Fault::new(text));
    }
    let read = |pair: &[Vec<u8>]| Ok((double(&pair[0]).ok_or(Fault::NOT_FLOAT)?, pair[1].clone()));
    let pairs = pairs.chunks_exact(2).map(read).collect::<Result<Vec<_>, Fault>>()?;
    let add = |set: &mut SortedSet| {
        let mut new = 0;
        for (score, member) in &pairs {
            let refused = match set.score(member) {
                None => xx,
                Some(before) => nx || gt && *score <= before || *score == before,
            };
            if !refused {
                new += usize::from(set.insert(member, *score).is_none());
            }
        }
        new
    };
    let new = match xx {
        true => core.keyspace.update(&words[1], add)?.unwrap_or(0),
        false => core.keyspace.update_or_create(&words[1], add)?,
    };
    Ok(Reply::int(new))
}

fn zrem(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let removed = core.keyspace.update(&words[1], |set: &mut SortedSet| {
        words[2..].iter().filter(|member| set.remove(member)).count()
    })?;
    Ok(Reply::int(removed.unwrap_or(0)))
}

fn zcard(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    Ok(Reply::int(core.keyspace.get::<SortedSet>(&words[1])?.map_or(0, SortedSet::len)))
}

fn zscore(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let set = core.keyspace.get::<SortedSet>(&words[1])?;
    Ok(set.and_then(|set| set.score(&words[2])).map_or(Reply::Null, Reply::Double))
}

fn zrank(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let set = core.keyspace.get::<SortedSet>(&words[1])?;
    Ok(set.and_then(|set| set.rank(&words[2])).map_or(Reply::Null, Reply::int))
}

/// The ranks from one to another, each counted from the end if it is negative.
pub(super) fn ranks(first: i64, last: i64, length: usize) -> Range<usize> {
    let length = length as i64;
    let from_end = |rank: i64| if rank < 0 { rank.saturating_add(length) } else { rank };
    let (first, last) = (from_end(first).max(0), from_end(last).min(length - 1));
    if first > last { 0..0 } else { first as usize..last as usize + 1 }
}

fn bounds(low: &[u8], high: &[u8]) -> Result<(Bound, Bound), Fault> {
    let bound = |text: &[u8]| {
        let (text, exclusive) = match text.strip_prefix(b"(") {
            Some(text) => (text, true),
            None => (text, false),
        };
        let score = double(text).ok_or(Fault::new("ERR min or max is not a float"))?;
        Ok(Bound { score, exclusive })
    };
    Ok((bound(low)?, bound(high)?))
}

fn members<'a>(
    found: impl Iterator<Item = (&'a [u8], f64)>,
    with_scores: bool,
    protocol: Protocol,
) -> Reply {
    let reply = |(member, score): (&[u8], f64)| match (with_scores, protocol) {
        (false, _) => vec![Reply::bulk(member)],
        (true, Protocol::Resp2) => vec![Reply::bulk(member), Reply::Double(score)],
        (true, Protocol::Resp3) => {
            vec![Reply::Array(vec![Reply::bulk(member), Reply::Double(score)])]
        }
    };
    Reply::Array(found.flat_map(reply).collect())
}

fn zrange(core: &mut Core, caller: Caller, words: &[Vec<u8>]) -> Answer {
    let with_scores = match &words[4..] {
        [] => false,
        [option] if is(option, "withscores") => true,
        _ => return Err(core.not_simulated("zrange with other options", Fault::SYNTAX)),
    };
    let (first, last) = (integer(&words[2])?, integer(&words[3])?);
    let Some(set) = core.keyspace.get::<SortedSet>(&words[1])? else {
        return Ok(Reply::Array(Vec::new()));
    };
    Ok(members(set.at(ranks(first, last, set.len())), with_scores, caller.protocol))
}

fn zrangebyscore(core: &mut Core, caller: Caller, words: &[Vec<u8>]) -> Answer {
    let (mut with_scores, mut skipped, mut most) = (false, 0, -1);
    let mut options = &words[4..];
    while let Some((option, rest)) = options.split_first() {
        options = match rest {
            [offset, count, rest @ ..] if is(option, "limit") => {
                (skipped, most) = (integer(offset)?, integer(count)?);
                rest
            }
            rest if is(option, "withscores") => {
                with_scores = true;
                rest
            }
            _ => return Err(Fault::SYNTAX),
        };
    }
    let (low, high) = bounds(&words[2], &words[3])?;
    let set = core.keyspace.get::<SortedSet>(&words[1])?;
    let Some(set) = set.filter(|_| skipped >= 0) else { return Ok(Reply::Array(Vec::new())) };
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let found = set.between(low, high).skip(skipped as usize).take(most);
    Ok(members(found, with_scores, caller.protocol))
}

fn zcount(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let (low, high) = bounds(&words[2], &words[3])?;
    let set = core.keyspace.get::<SortedSet>(&words[1])?;
    Ok(Reply::int(set.map_or(0, |set| set.between(low, high).count())))
}

fn zremrangebyscore(core: &mut Core, _: Caller, words: &[Vec<u8>]) -> Answer {
    let (low, high) = bounds(&words[2], &words[3])?;
    let removed = core.keyspace.update(&words[1], |set: &mut SortedSet| {
        let found: Vec<_> = set.between(low, high).map(|(member, _)| member.to_vec()).collect();
        found.iter().filter(|member| set.remove(member)).count()
    })?;
    Ok(Reply::int(removed.unwrap_or(0)))
}

fn zpop(core: &mut Core, caller: Caller, words: &[Vec<u8>]) -> Answer {
    let count = match &words[2..] {
        [] => None,
        [count] => {
            let count = integer(count).ok().and_then(|count| usize::try_from(count).ok());
            let negative = Fault::new("ERR value is out of range, must be positive");
            Some(count.ok_or(negative)?)
        }
        _ => return Err(Fault::SYNTAX),
    };
    let smallest = is(&words[0], "zpopmin");
    let popped = core.keyspace.update(&words[1], |set: &mut SortedSet| {
        let found = |members: &mut dyn Iterator<Item = (&[u8], f64)>| -> Vec<(Vec<u8>, f64)> {
            members.take(count.unwrap_or(1)).map(|(m, score)| (m.to_vec(), score)).collect()
        };
        let found = if smallest { found(&mut set.iter()) } else { found(&mut set.iter().rev()) };
        for (member, _) in &found {
            set.remove(member);
        }
        found
    })?;
    let popped = popped.unwrap_or_default();
    // Without a count the one member is not in an array of its own.
    let protocol = if count.is_some() { caller.protocol } else { Protocol::Resp2 };
    Ok(members(popped.iter().map(|(member, score)| (&member[..], *score)), true, protocol))
}
