//! Whether replies and rows are those of the twin, and the invariants that do not need it.

use super::twin::{Key, Reply, Row, label};
use super::{Event, Outcome, Schedule, Stage};

/// Whether a reply is as expected.
pub fn replies(expected: Option<&Reply>, reply: Option<&Reply>) -> bool {
    let (Some(expected), Some(reply)) = (expected, reply) else { return expected == reply };
    let holder = match &*reply.holder {
        [holder] if expected.holder.contains(holder) => reply.holder.clone(),
        _ => expected.holder.clone(),
    };
    *reply == Reply { holder, ..expected.clone() }
}

/// Compares the rows with those of the twin, which takes their times. The call was up to `slack`
/// later than the twin thought.
pub fn compare(twin: &mut [Key], rows: &[Row], slack: i64) -> Outcome {
    let kinds = (0..4).flat_map(|kind| twin.iter().flat_map(move |k| k.rows()[kind].clone()));
    let expected: Vec<Row> = kinds.collect();
    let same = |(e, r): (&Row, &Row)| {
        (&e.0, &e.1, &e.2) == (&r.0, &r.1, &r.2)
            && (0..=slack).contains(&(r.3 - e.3))
            && (r.4 - e.4).abs() <= slack
    };
    let differs = expected.iter().zip(rows).position(|pair| !same(pair));
    if let Some(nth) = differs.or((expected.len() != rows.len()).then_some(0)) {
        return Err(format!("rows {:?} are not {:?}", &rows[nth..], &expected[nth..]));
    }
    for key in twin {
        let of = |kind: &'static str| rows.iter().filter(move |r| r.0 == kind);
        for (lease, row) in key.lease.iter_mut().zip(of("lease").filter(|r| r.1 == key.name)) {
            (lease.ends, lease.used) = (row.3, row.4);
        }
        for (ends, row) in key.shares.values_mut().zip(of("share").filter(|r| r.1 == key.name)) {
            *ends = row.3;
        }
        for (waiter, row) in key.queue.iter_mut().zip(of("waiter").filter(|r| r.1 == key.name)) {
            waiter.ends = row.3;
        }
    }
    Ok(())
}

/// The tokens that hold a key, or wait for it, in order.
fn live<'a>(rows: &'a [Row], key: &str, waits: bool, t: i64) -> Vec<&'a str> {
    let of = |row: &&Row| row.1 == key && row.3 > t && (row.0 == "waiter") == waits;
    rows.iter().filter(of).map(|row| row.2.split(' ').next().unwrap_or_default()).collect()
}

/// The client, the key and the fences of each grant in a reply.
fn grants(s: &Schedule<'_>, event: &Event, reply: &Reply) -> Vec<(usize, usize, (i64, i64))> {
    let block = |block: &str| {
        let (first, last) = block.split_once('-').unwrap_or((block, block));
        (first.parse().unwrap_or_default(), last.parse().unwrap_or_default())
    };
    let mut grants = Vec::new();
    if let Event::Ask(client) = event {
        let keys = s.clients[*client].ask.keys.iter().zip(&reply.fences);
        grants.extend(keys.map(|(k, fences)| (*client, *k, block(fences))));
    }
    for (_, push) in &reply.pushes {
        let parts: Vec<_> = push.split('|').collect();
        let client = parts[0].get(..10).and_then(|c| c.parse().ok()).unwrap_or(0);
        if parts[2] != "0" {
            grants.push((client, s.clients[client].ask.keys[0], block(parts[1])));
        }
    }
    grants
}

/// Judges a step, and notes what the clients have learnt.
pub fn judge(
    s: &mut Schedule<'_>,
    event: &Event,
    reply: Option<&Reply>,
    before: &[Row],
    now: i64,
) -> Outcome {
    let mut granted = reply.map(|reply| grants(s, event, reply)).unwrap_or_default();
    granted.sort_by_key(|(_, _, (first, _))| *first);
    for (client, k, (first, last)) in &granted {
        let (key, token) = (&s.names[*k], &*s.clients[*client].ask.token);
        let again = live(before, key, false, s.now).contains(&token);
        let earlier = s.blocks.get(&(*client, *k)).filter(|_| again);
        match earlier {
            Some(block) if *last > 0 && *block != (*first, *last) => {
                return Err(format!("c{client} has fence {first} in place of {block:?}"));
            }
            None if *last > 0 && *first <= s.given[*k] => {
                return Err(format!("c{client} has fence {first} after {}", s.given[*k]));
            }
            _ => {}
        }
        if *last > 0 {
            s.blocks.insert((*client, *k), (*first, *last));
        } else if !again {
            s.blocks.remove(&(*client, *k));
        }
        s.given[*k] = s.given[*k].max(*last);
        if !again {
            // One that has expired is behind no one, and one that asks again has its place.
            let ahead = live(before, key, true, 0).into_iter().take_while(|t| *t != token);
            let left = live(&s.rows, key, true, now);
            if let Some(other) = ahead.into_iter().find(|other| left.contains(other)) {
                return Err(format!("c{client} overtakes {}", label(other)));
            }
        }
    }
    note(s, event, reply, now);
    for (client, k, (_, last)) in granted {
        let lost = s.faults && s.rng.u8(..6) == 0;
        let of = &mut s.clients[client];
        match of.stage {
            Stage::Waiting if !lost => of.stage = Stage::Holding,
            Stage::Waiting | Stage::Holding => {}
            stage => return Err(format!("c{client} is granted what it does not want: {stage:?}")),
        }
        of.lost = false;
        if k == of.ask.keys[0] {
            of.fence = of.fence.max(last);
        }
    }
    (0..s.keys.len()).try_for_each(|k| holders(s, event, k, now))
}

/// What the clients learn, but for the grants.
fn note(s: &mut Schedule<'_>, event: &Event, reply: Option<&Reply>, now: i64) {
    match (event, reply) {
        (Event::Ask(client), Some(Reply { nth, .. })) => {
            let client = &mut s.clients[*client];
            client.stage = match nth {
                None => Stage::Holding,
                Some(_) if client.waits => Stage::Waiting,
                Some(_) => Stage::Gone,
            };
        }
        (Event::Release(client, _), _) => s.clients[*client].stage = Stage::Gone,
        (Event::Expire(client, _), _) => s.clients[*client].lost = true,
        (Event::Force(k), _) => {
            for client in s.clients.iter_mut().filter(|client| client.ask.keys.contains(k)) {
                client.lost |= client.stage == Stage::Holding;
            }
        }
        (Event::Advance(k), _) => {
            s.given[*k] = s.given[*k].max(s.keys[*k].fence.map_or(0, |fence| fence.last));
        }
        (Event::Tidy(_), _) => {
            // One that is ahead of the clock is forgotten with its row.
            for (given, key) in s.given.iter_mut().zip(&s.names) {
                if !s.rows.iter().any(|row| row.0 == "fence" && row.1 == *key) {
                    *given = if *given > now { 0 } else { *given };
                }
            }
        }
        _ => {}
    }
}

/// The holders of a key may be beside each other, nobody has lost it, and it is not left idle.
fn holders(s: &Schedule<'_>, event: &Event, k: usize, now: i64) -> Outcome {
    let name = &s.names[k];
    let held = live(&s.rows, name, false, now);
    let lease = s.rows.iter().any(|r| r.0 == "lease" && r.1 == *name && r.3 > now);
    let client = |token: &str| &s.clients[label(token)[1..].parse::<usize>().unwrap_or(0)];
    let limit = |token: &&str| {
        let ask = &client(token).ask;
        ask.keys.iter().zip(&ask.holders).find(|(key, _)| **key == k).map_or(1, |(_, n)| *n)
    };
    let limits: Vec<_> = held.iter().map(limit).collect();
    let most = if limits.contains(&0) { i32::MAX } else { *limits.iter().max().unwrap_or(&1) };
    if held.len() > most as usize || lease && held.len() > 1 {
        return Err(format!("{held:?} hold a key, of which some do not share it with so many"));
    }
    let lost = |client: &&super::Client| {
        client.stage == Stage::Holding
            && !client.lost
            && client.ask.keys.contains(&k)
            && !held.contains(&&*client.ask.token)
    };
    if let Some(client) = s.clients.iter().find(lost) {
        return Err(format!("{} has lost its lock", client.ask.token));
    }
    let acts = match event {
        Event::Release(client, _) => s.clients[*client].ask.keys.contains(&k),
        Event::Ask(client) => s.clients[*client].ask.keys == [k],
        Event::Force(forced) => *forced == k,
        _ => false,
    };
    let waiting = live(&s.rows, name, true, now);
    if acts && held.is_empty() && !waiting.is_empty() && s.keys[k].writing.is_none() {
        return Err(format!("{waiting:?} wait for a key that is free"));
    }
    Ok(())
}

/// A reply in a line of the log, without what is empty.
pub fn line(reply: Option<&Reply>) -> String {
    let Some(Reply { held, nth, holder, rest, rank, fences, pushes }) = reply else {
        return "the fence is locked".to_owned();
    };
    let pushes: Vec<_> = pushes.iter().map(|(_, push)| push).collect();
    match nth {
        _ if !held.is_empty() => format!("{held:?} {pushes:?}"),
        None => format!("granted {fences:?} {pushes:?}"),
        Some(nth) => {
            format!("key {nth} is held by {holder:?} for {rest:?}, rank {rank:?} {pushes:?}")
        }
    }
}
