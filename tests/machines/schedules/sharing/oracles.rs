//! One judge for each invariant of a lock that callers share. Each sees one step.

use crate::model::{CONFIRM_WINDOW, Event, Reply, Step, World};
use crate::oracles::{Invariant, Judge, Verdict, ensure};
use crate::store::{FENCE, HOLDERS, LOCK, Look, QUEUE, RECORDS};

/// The server's clock shows microseconds, its expiries milliseconds.
const ROUNDING_MS: i64 = 2;

pub const JUDGES: [Judge; 9] = [
    (Invariant::Limits, limits),
    (Invariant::Stays, stays),
    (Invariant::Marked, |_, step| marked(step)),
    (Invariant::Leases, leases),
    (Invariant::InOrder, in_order),
    (Invariant::GoesOn, goes_on),
    (Invariant::Fenced, |_, step| fenced(step)),
    (Invariant::Answers, answers),
    (Invariant::Ends, |_, step| ends(step)),
];

/// The clients that have the lock since this step, in the order in which they came.
fn entrants(world: &World, step: &Step) -> Vec<usize> {
    let is_new = |token: &str| step.after.holds(token) && !step.before.holds(token);
    let queue = step.before.queue.iter().map(|(token, _)| token);
    let waited = queue.filter(|token| is_new(token)).filter_map(|token| world.by_token(token));
    let mut entrants: Vec<_> = waited.collect();
    if let Event::Ask { client, .. } = step.event
        && is_new(&world.clients[client].token)
        && !entrants.contains(&client)
    {
        entrants.push(client);
    }
    entrants
}

fn limits(world: &World, step: &Step) -> Verdict {
    let stayed = step.after.live_holders().filter(|token| step.before.holds(token)).count();
    for (inside, client) in (stayed..).zip(entrants(world, step)) {
        let limit = world.clients[client].limit;
        ensure(limit == 0 || inside < limit as usize, format!("c{client} is beside {inside}"))?;
    }
    let is_exclusive = |token: &String| {
        world.by_token(token).is_some_and(|client| world.clients[client].limit == 1)
    };
    let (all, exclusive) = (
        step.after.live_holders().count(),
        step.after.live_holders().filter(|t| is_exclusive(t)).count(),
    );
    ensure(exclusive == 0 || all == 1, format!("{all} beside an exclusive holder"))
}

fn stays(world: &World, step: &Step) -> Verdict {
    if step.event == Event::Delete {
        return Ok(());
    }
    let now = step.after.at as f64 / 1_000.0;
    let over = |token: &str| {
        let ends = step.before.holders.iter().find(|(holder, _)| holder == token);
        let ends = ends.map_or(step.before.expiry(LOCK) as f64, |(_, ends)| *ends);
        ends <= now + 1.0
    };
    let leaves = |token: &str| match step.event {
        Event::Release { client, .. } | Event::Over { client } => {
            world.clients[client].token == token
        }
        _ => false,
    };
    let gone = step
        .before
        .live_holders()
        .find(|token| !step.after.holds(token) && !leaves(token) && !over(token));
    ensure(gone.is_none(), format!("{gone:?} does not hold the lock any more"))
}

/// When the last lease ends.
fn last_end(look: &Look) -> Option<i64> {
    look.holders.iter().map(|(_, ends)| *ends as i64).max()
}

fn marked(step: &Step) -> Verdict {
    let look = &step.after;
    if !look.is_shared() {
        return Ok(());
    }
    let Some(last) = last_end(look) else { return Err("shared by nobody".to_owned()) };
    let expiry = look.expiry(LOCK);
    let before = &step.before;
    // A script that the machine stops reads the clock before, and sets the expiry after that. An
    // expiry that is still long enough was judged when it was set.
    let stays = before.is_shared()
        && (before.expiry(LOCK) - expiry).abs() <= ROUNDING_MS
        && last_end(before) <= Some(last);
    let slow = ((look.at - before.at) / 1_000) as i64;
    let latest = if stays { i64::MAX } else { last + slow + ROUNDING_MS };
    let is_right = (last - ROUNDING_MS..=latest).contains(&expiry);
    ensure(is_right, format!("the key expires at {expiry}, and the last lease at {last}"))?;
    ensure(look.expiry(HOLDERS) >= last - ROUNDING_MS, "the holders are forgotten too soon")
}

fn leases(world: &World, step: &Step) -> Verdict {
    for client in entrants(world, step) {
        let asking = &world.clients[client];
        let ttl = match step.event.actor() == Some(client) {
            true => asking.ttl,
            false => asking.ttl.min(CONFIRM_WINDOW),
        };
        let holder = step.after.holders.iter().find(|(token, _)| *token == asking.token);
        let ends = match asking.limit {
            1 => step.after.expiry(LOCK),
            _ => holder.map_or(0, |(_, ends)| *ends as i64),
        };
        let [first, last] = [step.before.at, step.after.at].map(|at| (at / 1_000 + ttl) as i64);
        let during = first - ROUNDING_MS..=last + ROUNDING_MS;
        ensure(during.contains(&ends), format!("the lease of c{client} ends at {ends}"))?;
    }
    Ok(())
}

fn in_order(world: &World, step: &Step) -> Verdict {
    let waits = |client: usize| step.after.waits(&world.clients[client].token);
    for client in entrants(world, step) {
        let ahead = world.queue.iter().take_while(|other| **other != client);
        let passed = ahead.copied().find(|other| waits(*other) && world.lives(*other, step));
        if let Some(passed) = passed {
            return Err(format!("c{client} has overtaken c{passed}"));
        }
    }
    let leaves =
        |client: usize| matches!(step.event, Event::Release { client: of, .. } if of == client);
    let dropped = world.queue.iter().find(|client| {
        let stays = waits(**client) || step.after.holds(&world.clients[**client].token);
        !stays && !leaves(**client) && world.lives(**client, step)
    });
    match dropped {
        Some(client) => Err(format!("c{client} lives, and has left the queue")),
        None => Ok(()),
    }
}

fn goes_on(world: &World, step: &Step) -> Verdict {
    let changes = match step.event {
        // A caller that may not enter, or has the lock, does not look at the others.
        Event::Ask { client, .. } => entrants(world, step).contains(&client),
        Event::Release { client, .. } => {
            let token = &world.clients[client].token;
            let was_head = step.before.queue.first().is_some_and(|(head, _)| head == token);
            let was_free = step.before.held.is_none();
            was_free || step.before.holds(token) || was_head && step.before.is_shared()
        }
        _ => false,
    };
    let waiting = step.after.queue.iter().filter_map(|(token, _)| world.by_token(token));
    let head = waiting.into_iter().find(|client| world.lives(*client, step));
    let Some(head) = head.filter(|_| changes) else { return Ok(()) };
    let inside = step.after.live_holders().count();
    let limit = world.clients[head].limit as usize;
    let may_enter =
        inside == 0 || step.after.is_shared() && limit != 1 && (limit == 0 || inside < limit);
    ensure(!may_enter, format!("c{head} may enter beside {inside}, and waits"))
}

fn fenced(step: &Step) -> Verdict {
    if let Reply::Granted(Some((first, last))) = step.reply {
        let before = step.before.fence.unwrap_or(0);
        ensure(first > before && first <= last, format!("{first} after {before}"))?;
        ensure(step.after.fence >= Some(last), "a fence that is not kept")?;
    }
    ensure(step.after.fence >= step.before.fence, "the last fence went back")
}

fn answers(world: &World, step: &Step) -> Verdict {
    match step.event {
        Event::Ask { client, .. } => {
            let token = &world.clients[client].token;
            let is_granted = matches!(step.reply, Reply::Granted(_));
            ensure(is_granted == step.after.holds(token), "what it is told is not so")?;
            ensure(is_granted || !step.before.holds(token), "a holder is refused")
        }
        Event::Release { client, .. } => {
            let held = step.before.holds(&world.clients[client].token);
            let is_held = step.reply == Reply::Own(true);
            // A lease may have ended in between.
            ensure(!is_held || held, "it did not hold the lock")?;
            let stays = step.after.holds(&world.clients[client].token);
            ensure(!stays, "it holds the lock after its release")
        }
        Event::Renew { client, ttl } => {
            let token = &world.clients[client].token;
            let is_held = step.reply == Reply::Own(true);
            ensure(is_held == step.after.holds(token), "what it is told is not so")?;
            let end = step.after.holders.iter().find(|(holder, _)| holder == token);
            let least = (step.before.at / 1_000 + ttl) as f64;
            let is_longer = end.is_none_or(|(_, ends)| *ends >= least);
            ensure(!is_held || is_longer, "the lease is not longer")
        }
        _ => Ok(()),
    }
}

fn ends(step: &Step) -> Verdict {
    for (key, expiry) in &step.after.keys {
        let is_known = [LOCK, QUEUE, RECORDS, FENCE, HOLDERS].contains(&key.as_str());
        ensure(is_known, format!("an unexpected key {key}"))?;
        ensure(*expiry >= 0, format!("{key} has no ttl"))?;
    }
    Ok(())
}

/// Checks the keys that are left when every client has left: those that a `min_hold` keeps.
pub fn quiet(look: &Look) -> Verdict {
    let is_kept = |(token, _): &(String, f64)| token.starts_with("kept:");
    let held = look.live_holders().count();
    let waits = !look.queue.is_empty() || look.expiry(RECORDS) != -2;
    ensure(!waits, "somebody is in the queue")?;
    let kept = look.holders.iter().filter(|holder| is_kept(holder)).count();
    let nothing = |key: &str| look.expiry(key) == -2;
    ensure(held <= kept.max(1), format!("{held} hold the lock, and {kept} keep it"))?;
    ensure(held > 0 || nothing(LOCK), "the key is left behind")
}
