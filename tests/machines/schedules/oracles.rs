//! One judge for each invariant of the queue. Each sees one step, and what was known before it.
//! Long, as the list of the judges is read as one.

use crate::model::{CONFIRM_WINDOW, Event, FENCE_TTL, Reply, Stage, Step, WAITER_LEASE, World};
use crate::store::{FENCE, LOCK, Look, QUEUE, RECORDS, SECRET};

/// The server's clock shows microseconds, its expiries milliseconds.
const ROUNDING_MS: i64 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invariant {
    /// Only a grant, its owner and its expiry change a lock and its ttl, and the answer tells how;
    /// a client that received a grant holds the lock.
    Owned,
    /// A waiter in the queue has a record and the other way round; the holder is not in the queue.
    Paired,
    /// Every fence is larger than every earlier one.
    Fenced,
    /// No client is handed the lock after its lease in the queue has lapsed, or where no push
    /// reaches it. That it is granted once, and not after it has left, is a part of the model.
    Once,
    /// No live waiter is dropped; the model says in which order they are served.
    InOrder,
    /// While a live client waits, the lock is granted within the bound, and the client is told.
    GoesOn,
    /// Acquire and release are idempotent for a token.
    Idempotent,
    /// Every key has a ttl, a waiter stays for its lease, and the queue has its bound; at the end
    /// only the fence is left.
    Ends,
    /// The model of `lockmacro-model-tests`, which is searched exhaustively, allows the step: who
    /// holds the lock, who waits in which order, and what is answered.
    Modelled,
    /// Each holder entered beside fewer holders than its limit, and an exclusive one alone.
    Limits,
    /// A holder that shares the lock stays until its lease ends, or until it is released.
    Stays,
    /// The key exists until the last lease ends, and says that it is shared.
    Marked,
    /// A lease lasts as long as it was asked for; handed off, at most for the confirm window.
    Leases,
    /// The answer to a request, a release or a renewal is right.
    Answers,
}

pub type Verdict = Result<(), String>;
pub type Judge = (Invariant, fn(&World, &Step) -> Verdict);

/// The judges of exclusive callers.
pub const JUDGES: [Judge; 9] = [
    (Invariant::Owned, owned),
    (Invariant::Paired, |_, step| paired(step)),
    (Invariant::Fenced, fenced),
    (Invariant::Once, once),
    (Invariant::InOrder, in_order),
    (Invariant::GoesOn, goes_on),
    (Invariant::Idempotent, idempotent),
    (Invariant::Ends, ends),
    (Invariant::Modelled, |_, step| step.allowed.clone()),
];

pub fn ensure(holds: bool, otherwise: impl Into<String>) -> Verdict {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

/// Whether a lease of `ms` that began during the step ends then.
fn ends_after(step: &Step, ms: u64, expiry: i64) -> bool {
    let at = |look: &Look| (look.at / 1_000 + ms) as i64;
    (at(&step.before) - ROUNDING_MS..=at(&step.after) + ROUNDING_MS).contains(&expiry)
}

fn owned(world: &World, step: &Step) -> Verdict {
    let (before, after) = (step.before.held.as_deref(), step.after.held.as_deref());
    let (expired, expires) = (step.before.expiry(LOCK), step.after.expiry(LOCK));
    let token = step.event.actor().map(|actor| world.clients[actor].token.as_str());
    let own = before.is_some() && before == token;
    let untouched = before == after && expired == expires;
    match step.event {
        Event::Ask { client, .. } => {
            let ttl = world.clients[client].ttl;
            let refused = step.reply == Reply::Refused;
            let is_right = refused == world.is_refused(client, &step.before);
            ensure(is_right, "refused for no reason, or not")?;
            ensure(!refused || untouched, "a lock was changed by a server that is full")?;
            // Asking again extends a lease and never shortens it.
            let longer =
                own && untouched && expired >= (step.before.at / 1_000 + ttl) as i64 - ROUNDING_MS;
            let lasts = longer || ends_after(step, ttl, expires);
            let granted = matches!(step.reply, Reply::Granted(_));
            ensure(!granted || lasts, "granted for another time")?;
            let is_others = before.is_some() && !own;
            ensure(!is_others || untouched, "a held lock was changed by a request")?;
            if let Reply::Busy(left, holder, _) = &step.reply {
                ensure(holder == after.unwrap_or_default(), "busy with another holder")?;
                let left_at = |look: &Look| expires - (look.at / 1_000) as i64;
                let left_then = left_at(&step.after) - 1..=left_at(&step.before) + 1;
                ensure(after.is_none() || left_then.contains(left), "busy for another time")?;
            }
        }
        Event::Release { keep, .. } if own && keep > 0 => {
            // The label stays, so that it is known for one of ours.
            let label = token.and_then(|token| token.split('/').next()).unwrap_or_default();
            let kept = format!("{label}/{:032}", 0);
            ensure(after == Some(kept.as_str()), "kept under another name, or not at all")?;
            ensure(ends_after(step, keep, expires), "kept for another time")?;
        }
        Event::Release { .. } => {
            let is_others = before.is_some() && !own;
            ensure(!is_others || untouched, "a lock of another one was changed")?;
        }
        Event::Renew { ttl, .. } => {
            ensure(own || untouched, "a lock of another one was renewed")?;
            let at_least = expired.max((step.before.at / 1_000 + ttl) as i64 - ROUNDING_MS);
            // The time left is written again, and a moment may pass between reading and writing it.
            let kept = (expired..=expired + ROUNDING_MS).contains(&expires);
            let as_asked = kept || ends_after(step, ttl, expires);
            ensure(!own || before == after && as_asked, "renewed to something else")?;
            ensure(!own || expires >= at_least, "renewed for too short")?;
        }
        Event::Set { .. } => {}
        Event::Expire => ensure(after.is_none(), "an expired lock is there")?,
        Event::ForeignSet => ensure(untouched || before.is_none(), "set over a lock")?,
        Event::ForeignDelete => {
            ensure(untouched || world.holder(&step.before).is_none(), "deleted by a stranger")?;
        }
        _ => ensure(untouched, "a lock was changed by nobody")?,
    }
    // A client that goes on by its last reply must still hold the lock.
    let gone = |client: usize| {
        matches!(step.event, Event::Release { client: actor, .. } if actor == client)
            || step.event == Event::Expire
    };
    let deceived = world.clients.iter().enumerate().find(|(number, client)| {
        let relies = client.stage == Stage::Holding && !client.lost;
        relies && !gone(*number) && after != Some(client.token.as_str())
    });
    match deceived {
        Some((client, _)) => Err(format!("c{client} goes on with a lock that it does not hold")),
        None => Ok(()),
    }
}

fn paired(step: &Step) -> Verdict {
    let mut queue: Vec<&String> = step.after.queue.iter().map(|(token, _)| token).collect();
    queue.sort();
    let records = step.after.records.iter().map(|(token, _)| token);
    ensure(queue.into_iter().eq(records), "the tokens in the queue are not those with a record")?;
    let holder_waits = step.after.held.as_ref().is_some_and(|held| step.after.waits(held));
    ensure(!holder_waits, "the holder is in the queue")
}

fn fenced(world: &World, step: &Step) -> Verdict {
    if matches!(step.event, Event::FenceForgotten | Event::FenceAhead(_)) {
        return Ok(());
    }
    let fences = match step.reply {
        Reply::Granted(fences) => Some(fences),
        _ => step.pushes.first().map(|push| push.fences),
    };
    let holder = world.holder(&step.after);
    if let (Some(fences), Some(holder)) = (fences, holder) {
        ensure(fences.is_some() == world.clients[holder].fenced, "a fence as it was asked for")?;
        if let Some((first, last)) = fences {
            ensure(Some(last) == step.after.fence, "not the fence that is kept")?;
            ensure(first > world.last_fence, "a fence that was issued before")?;
            let is_one = first == last || step.before.fence.is_some() && first > last - 256;
            ensure(first <= last && is_one, format!("fences from {first} to {last}"))?;
        }
    }
    let granted = holder.filter(|_| step.before.held != step.after.held);
    match granted {
        Some(client) if world.clients[client].fenced => {
            let new = step.after.fence.unwrap_or(0);
            ensure(new > world.last_fence, format!("{new} after {}", world.last_fence))?;
            let kept = ends_after(step, FENCE_TTL, step.after.expiry(FENCE));
            ensure(kept, "a fence is kept for another time")
        }
        _ => {
            ensure(step.after.fence.unwrap_or(0) >= step.before.fence.unwrap_or(0), "a fence back")
        }
    }
}

fn once(world: &World, step: &Step) -> Verdict {
    let Some(number) = world.handed_off(step) else { return Ok(()) };
    let Some(last_request) = world.clients[number].last_request else {
        return Err(format!("c{number} is granted, and did not wait"));
    };
    let lives = last_request.until.1 > step.before.at;
    ensure(lives, format!("c{number} is granted, and had lapsed"))?;
    let reached = !last_request.probe || world.muted || world.reachable(number);
    ensure(reached, format!("no push reaches c{number}"))
}

fn in_order(world: &World, step: &Step) -> Verdict {
    let granted = world.holder(&step.after).filter(|_| step.before.held != step.after.held);
    let left = |client: usize| {
        step.after.waits(&world.clients[client].token)
            || Some(client) == granted
            || Some(client) == step.event.actor() && !matches!(step.event, Event::Renew { .. })
    };
    let dropped = world.queue.iter().find(|c| !left(**c) && world.lives(**c, step));
    match dropped {
        Some(client) => Err(format!("c{client} lives, and left the queue")),
        None => Ok(()),
    }
}

fn goes_on(world: &World, step: &Step) -> Verdict {
    if let Event::Ask { client, max_queue, .. } = step.event
        && max_queue > 0
        && let Reply::Busy(_, _, queued) = &step.reply
    {
        let token = &world.clients[client].token;
        let rank = step.after.rank(token).map_or(-1, |rank| rank as i64);
        let full = !step.before.waits(token) && step.before.queue.len() >= max_queue;
        ensure(rank >= 0 || full, "it waits, and is not in the queue")?;
        let Some((replied, at)) = queued else { return Err("no rank".to_owned()) };
        ensure(*replied == rank, format!("rank {replied}, and is {rank}"))?;
        let during = step.before.at..=step.after.at;
        ensure(during.contains(at), "not the server's time")?;
    }
    if let Event::Ask { max_queue: 1.., .. } = step.event
        && let Reply::Busy(_, holder, _) = &step.reply
        && world.by_token(holder).is_none()
        && step.after.held.as_ref() == Some(holder)
        && !world.is_kept(holder)
        && let Some((head, _)) = step.after.queue.first()
        && let Some(head) = world.by_token(head)
    {
        let is_dead = world.is_dead(head, step);
        let passed = step.before.queue.len().saturating_sub(step.after.queue.len());
        ensure(!is_dead || passed >= 7, format!("c{head} is dead, and the head"))?;
    }
    if let Some(number) = world.handed_off(step) {
        let px = world.clients[number].ttl.min(CONFIRM_WINDOW);
        let expires = step.after.expiry(LOCK);
        ensure(ends_after(step, px, expires), format!("handed off until {expires}"))?;
        if world.reachable(number) && !world.muted {
            let [push] = &step.pushes[..] else {
                return Err(format!("c{number} received {:?}", step.pushes));
            };
            let during = step.before.at..=step.after.at;
            let is_own = (push.number, push.secret) == (number, Some(SECRET));
            let is_right = is_own && push.px == px && during.contains(&push.at);
            ensure(is_right, format!("c{number} received {push:?}"))?;
        }
    }
    if let Some(number) = world.asked_to_poll(step) {
        // Whoever sees this push must not be able to send a grant.
        let received: Vec<_> =
            step.pushes.iter().map(|push| (push.number, push.secret, push.px)).collect();
        ensure(received == [(number, None, 0)], format!("c{number} received {received:?}"))?;
    }
    Ok(())
}

fn idempotent(world: &World, step: &Step) -> Verdict {
    let (before, after) = (&step.before, &step.after);
    match step.event {
        Event::Ask { client, .. } => {
            let asking = &world.clients[client];
            let is_own = before.held.as_ref() == Some(&asking.token);
            let same = (asking.fenced || after.fence == before.fence)
                && (&before.queue, &before.records) == (&after.queue, &after.records);
            ensure(!is_own || same, "more changed than a ttl and the fences")?;
            let ticket = |look: &Look| {
                look.queue.iter().find(|(token, _)| *token == asking.token).map(|(_, at)| *at)
            };
            let tickets = (ticket(before), ticket(after));
            let kept = !matches!(tickets, (Some(old), Some(new)) if old != new);
            ensure(kept, format!("another ticket: {tickets:?}"))
        }
        Event::Release { client, .. } if world.clients[client].stage == Stage::Gone => {
            // A free lock is handed off, whoever releases it.
            let hands_off = before.held.is_none() && !before.queue.is_empty();
            let same = Look { at: before.at, ..after.clone() } == *before;
            ensure(hands_off || same, "released twice, and it shows")
        }
        _ => Ok(()),
    }
}

fn ends(world: &World, step: &Step) -> Verdict {
    for (key, expiry) in &step.after.keys {
        ensure(
            [LOCK, QUEUE, RECORDS, FENCE].contains(&key.as_str()),
            format!("an unexpected key {key}"),
        )?;
        ensure(*expiry >= 0, format!("{key} has no ttl"))?;
    }
    if let Event::Ask { client, lease, max_queue, .. } = step.event
        && max_queue > 0
    {
        let asked = step.after.waits(&world.clients[client].token);
        let until = (step.before.at / 1_000 + lease) as i64;
        for key in [QUEUE, RECORDS] {
            ensure(!asked || step.after.expiry(key) >= until, format!("{key} ends too soon"))?;
            let latest = (step.after.at / 1_000 + WAITER_LEASE * 3 / 2) as i64 + ROUNDING_MS;
            ensure(step.after.expiry(key) <= latest, format!("{key} stays for too long"))?;
        }
        let record =
            step.after.records.iter().find(|(token, _)| *token == world.clients[client].token);
        if let Some((_, deadline)) = record
            && step.reply != Reply::Refused
        {
            ensure(ends_after(step, lease, *deadline as i64), "a record with another deadline")?;
        }
        let bound = max_queue.max(step.before.queue.len());
        ensure(step.after.queue.len() <= bound, "the queue is too long")?;
    }
    Ok(())
}

/// Checks the keys that are left when every client is dead, or has released all of its locks.
pub fn quiet(after: &Look) -> Verdict {
    let more: Vec<_> = after.keys.iter().filter(|(key, _)| key != FENCE).collect();
    ensure(more.is_empty(), format!("left behind: {more:?}"))
}
