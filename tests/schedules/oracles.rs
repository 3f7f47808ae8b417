//! One judge for each invariant of the queue. Each sees one step, and what was known before it.
//! Long, as the list of the judges is read as one.

use std::fmt;

use crate::model::{CONFIRM_WINDOW, Event, FENCE_TTL, Reply, Stage, Step, WAITER_LEASE, World};
use crate::store::{FENCE, LOCK, Look, QUEUE, RECORDS, SECRET};

/// Dead waiters that one call passes.
const DEAD_AT_ONCE: usize = 128;
/// The server's clock shows microseconds, its expiries milliseconds.
const ROUNDING_MS: i64 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invariant {
    /// The lock is absent or one acquisition's; only a grant, its owner, its expiry or a foreign
    /// client changes it; a client that received a grant holds the lock.
    Owned,
    /// A waiter in the queue has a record and the other way round; the holder is not in the queue.
    Paired,
    /// Every fence is larger than every earlier one.
    Fenced,
    /// No client is granted the lock twice, or after it has left or its lease in the queue has
    /// lapsed, or where no push reaches it. A waiter that is in the queue again, because a grant
    /// expired before its push arrived, may be granted again.
    Once,
    /// Live waiters are served in order, and none of them is dropped.
    InOrder,
    /// While a live client waits, the lock is granted within the bound.
    GoesOn,
    /// Acquire and release are idempotent for a token.
    Idempotent,
    /// Every key has a ttl, a waiter stays for its lease, and the queue has its bound; at the end
    /// only the fence is left.
    Ends,
    /// The model of `lockmacro-model-tests`, which is searched exhaustively, allows the step.
    Modelled,
}

pub const INVARIANTS: [Invariant; 9] = [
    Invariant::Owned,
    Invariant::Paired,
    Invariant::Fenced,
    Invariant::Once,
    Invariant::InOrder,
    Invariant::GoesOn,
    Invariant::Idempotent,
    Invariant::Ends,
    Invariant::Modelled,
];

type Verdict = Result<(), String>;

impl Invariant {
    pub fn judge(self, world: &World, step: &Step) -> Verdict {
        match self {
            Invariant::Owned => owned(world, step),
            Invariant::Paired => paired(step),
            Invariant::Fenced => fenced(world, step),
            Invariant::Once => once(world, step),
            Invariant::InOrder => in_order(world, step),
            Invariant::GoesOn => goes_on(world, step),
            Invariant::Idempotent => idempotent(world, step),
            Invariant::Ends => ends(world, step),
            Invariant::Modelled => step.allowed.clone(),
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Invariant::Owned => "I1",
            Invariant::Paired => "I2",
            Invariant::Fenced => "I3",
            Invariant::Once => "I4",
            Invariant::InOrder => "I5",
            Invariant::GoesOn => "I6",
            Invariant::Idempotent => "I7",
            Invariant::Ends => "I10",
            Invariant::Modelled => "the model",
        };
        write!(f, "{name} ({self:?})")
    }
}

fn ensure(holds: bool, otherwise: impl Into<String>) -> Verdict {
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
    let waited = after.is_some_and(|after| step.before.waits(after) && Some(after) != token);
    match step.event {
        Event::Ask { client, .. } => {
            let ttl = world.clients[client].ttl;
            let granted = matches!(step.reply, Reply::Granted(_));
            ensure(granted == (after == token), "the answer is not what is true")?;
            let refused = step.reply == Reply::Refused;
            ensure(
                refused == world.is_refused(client, &step.before),
                "refused for no reason, or not",
            )?;
            if refused {
                return ensure(untouched, "a lock was changed by a server that is full");
            }
            // Asking again extends a lease and never shortens it.
            let longer =
                own && untouched && expired >= (step.before.at / 1_000 + ttl) as i64 - ROUNDING_MS;
            let lasts = longer || ends_after(step, ttl, expires);
            ensure(!granted || lasts, "granted for another time")?;
            match before {
                Some(_) if own => ensure(before == after, "an own lock was lost by asking")?,
                Some(_) => ensure(untouched, "a held lock was changed by a request")?,
                None => ensure(granted || waited || after.is_none(), "a grant to nobody")?,
            }
            if let Reply::Busy(left, holder, _) = &step.reply {
                ensure(holder == after.unwrap_or_default(), "busy with another holder")?;
                let left_at = |look: &Look| expires - (look.at / 1_000) as i64;
                let left_then = left_at(&step.after) - 1..=left_at(&step.before) + 1;
                ensure(after.is_none() || left_then.contains(left), "busy for another time")?;
            }
        }
        Event::Set { .. } => {
            ensure((step.reply == Reply::Own(true)) == before.is_none(), "a SET that lies")?;
            ensure(untouched || before.is_none() && after == token, "a SET over a lock")?;
        }
        Event::Release { keep, .. } => {
            ensure(step.reply == Reply::Own(own), "the answer is not what is true")?;
            let spent = own && keep > 0;
            match after {
                // A free lock is handed off, whoever releases it.
                _ if before.is_none() => {
                    ensure(waited || after.is_none(), "a grant to nobody")?;
                }
                _ if !own => ensure(untouched, "a lock of another one was changed")?,
                Some(after) if spent => {
                    // The label stays, so that it is known for one of ours.
                    let label = token.and_then(|token| token.split('/').next()).unwrap_or_default();
                    ensure(after == format!("{label}/{:032}", 0), "kept under another name")?;
                    ensure(ends_after(step, keep, expires), "kept for another time")?;
                }
                _ => ensure(!spent && (after.is_none() || waited), "a release that left a holder")?,
            }
        }
        Event::Renew { ttl, .. } => {
            ensure(step.reply == Reply::Own(own), "the answer is not what is true")?;
            ensure(own || untouched, "a lock of another one was renewed")?;
            let at_least = expired.max((step.before.at / 1_000 + ttl) as i64 - ROUNDING_MS);
            // The time left is written again, and a moment may pass between reading and writing it.
            let kept = (expired..=expired + ROUNDING_MS).contains(&expires);
            let as_asked = kept || ends_after(step, ttl, expires);
            ensure(!own || before == after && as_asked, "renewed to something else")?;
            ensure(!own || expires >= at_least, "renewed for too short")?;
        }
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
    let new = world.holder(&step.after).filter(|_| step.before.held != step.after.held);
    if let Some(number) = new {
        let client = &world.clients[number];
        let again = client.lost
            && client.stage != Stage::Holding
            && (client.asked_since_lost || step.event.actor() == Some(number));
        ensure(client.grants == 0 || again, format!("c{number} is granted again"))?;
        ensure(client.stage != Stage::Gone, format!("c{number} is granted, and gone"))?;
    }
    if let Some(number) = world.handed_off(step) {
        let Some(last_request) = world.clients[number].last_request else {
            return Err(format!("c{number} is granted, and did not wait"));
        };
        ensure(
            last_request.until.1 > step.before.at,
            format!("c{number} is granted, and had lapsed"),
        )?;
        let reached = !last_request.probe || world.muted || world.reachable(number);
        ensure(reached, format!("no push reaches c{number}"))?;
    }
    if let Event::Release { client, .. } = step.event {
        let token = &world.clients[client].token;
        ensure(!step.after.waits(token), "in the queue after its release")?;
        ensure(step.after.held.as_ref() != Some(token), "the holder after its release")?;
    }
    Ok(())
}

fn in_order(world: &World, step: &Step) -> Verdict {
    let actor = step.event.actor();
    let waits = |client: usize| step.after.waits(&world.clients[client].token);
    let mut expected: Vec<usize> = world.queue.iter().copied().filter(|c| waits(*c)).collect();
    if let (Event::Ask { .. }, Some(actor)) = (&step.event, actor)
        && waits(actor)
        && !world.queue.contains(&actor)
    {
        expected.push(actor);
    }
    let queue: Vec<usize> =
        step.after.queue.iter().filter_map(|(token, _)| world.by_token(token)).collect();
    ensure(queue == expected, format!("in the queue: {queue:?} and not {expected:?}"))?;

    let granted = world.holder(&step.after).filter(|_| step.before.held != step.after.held);
    let left = |client: usize| {
        Some(client) == granted
            || Some(client) == actor && !matches!(step.event, Event::Renew { .. })
    };
    let dropped = world.queue.iter().find(|c| !waits(**c) && !left(**c) && world.lives(**c, step));
    ensure(dropped.is_none(), format!("{dropped:?} lives, and left the queue"))?;

    // A plain SET may come first in the moment after an expiry.
    if let (Some(granted), false) = (granted, matches!(step.event, Event::Set { .. })) {
        let ahead = world.queue.iter().take_while(|client| **client != granted);
        let leaves =
            |client: usize| matches!(step.event, Event::Release { .. }) && Some(client) == actor;
        let passed = ahead.copied().find(|c| !leaves(*c) && world.lives(*c, step));
        ensure(passed.is_none(), format!("c{granted} was granted before {passed:?}"))?;
    }
    Ok(())
}

fn goes_on(world: &World, step: &Step) -> Verdict {
    let own = |client: usize| world.holder(&step.before) == Some(client);
    let hands_over = match step.event {
        Event::Ask { .. } => true,
        Event::Release { client, keep } => keep == 0 && own(client) || step.before.held.is_none(),
        _ => false,
    };
    if hands_over && step.after.held.is_none() && step.reply != Reply::Refused {
        let passed = step.before.queue.len().saturating_sub(step.after.queue.len()) + 1;
        let waits = step.after.queue.iter().filter_map(|(token, _)| world.by_token(token));
        let waits = waits.filter(|client| world.lives(*client, step)).count();
        let asked = matches!(step.event, Event::Ask { .. }) && step.after.queue.is_empty();
        ensure(passed >= DEAD_AT_ONCE || waits == 0 && !asked, "free, and somebody waits")?;
    }
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
    let same_queue = before.queue == after.queue && before.records == after.records;
    match step.event {
        Event::Ask { client, .. } => {
            let asking = &world.clients[client];
            if before.held.as_ref() == Some(&asking.token) {
                let Reply::Granted(fences) = step.reply else {
                    return Err("not granted again".to_owned());
                };
                ensure(fences.is_some() == asking.fenced, "fences as they were asked for")?;
                ensure(after.held == before.held, "another holder")?;
                let same_fence = asking.fenced || after.fence == before.fence;
                ensure(same_fence && same_queue, "more changed than a ttl and the fences")?;
            }
            let ticket = |look: &Look| {
                look.queue.iter().find(|(token, _)| *token == asking.token).map(|(_, at)| *at)
            };
            let tickets = (ticket(before), ticket(after));
            let kept = !matches!(tickets, (Some(old), Some(new)) if old != new);
            ensure(kept, format!("another ticket: {tickets:?}"))
        }
        Event::Release { client, .. } if world.clients[client].stage == Stage::Gone => {
            let nothing = before.held == after.held && before.keys == after.keys && same_queue;
            // A free lock is handed off, whoever releases it.
            let hands_off = before.held.is_none() && !before.queue.is_empty();
            let shows = !nothing || before.fence != after.fence;
            ensure(hands_off || !shows, "released twice, and it shows")
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
