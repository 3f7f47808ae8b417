//! What the functions do, in memory: each reply, and each row after it. Times are in microseconds.

use std::collections::BTreeMap;

/// For how long a hand-off is at most, in milliseconds.
const HAND_OFF: i64 = 5_000;
const FENCES_AT_ONCE: i64 = 256;

#[derive(Debug, Clone, Default)]
pub struct Key {
    pub name: String,
    pub lease: Option<Lease>,
    pub shares: BTreeMap<String, i64>,
    /// The fences of each token when it entered.
    pub given: BTreeMap<String, String>,
    pub queue: Vec<Waiter>,
    pub fence: Option<Fence>,
    /// A transaction has locked the fence, and makes it this one.
    pub writing: Option<Fence>,
}

#[derive(Debug, Clone)]
pub struct Lease {
    pub token: Option<String>,
    pub ends: i64,
    pub used: i64,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Fence {
    pub first: i64,
    pub last: i64,
    pub checked: i64,
    /// Not used for long.
    pub aged: bool,
}

#[derive(Debug, Clone)]
pub struct Waiter {
    pub ask: Ask,
    pub holders: i32,
    pub ends: i64,
}

/// What a client asks for, of some keys by their numbers.
#[derive(Debug, Clone)]
pub struct Ask {
    pub keys: Vec<usize>,
    pub token: String,
    pub ttl: i64,
    pub holders: Vec<i32>,
    pub fenced: bool,
    pub id: Option<String>,
    pub channel: Option<String>,
    pub callers: i32,
    pub waits: i64,
}

/// What a function returns; `held` is the answer of all but `ask`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reply {
    pub held: Vec<bool>,
    pub nth: Option<i32>,
    /// One of these, whose leases end at the same time.
    pub holder: Vec<String>,
    pub rest: Option<i64>,
    pub rank: Option<i32>,
    pub fences: Vec<String>,
    /// Each with its channel.
    pub pushes: Vec<(String, String)>,
}

/// Its kind, its key, what it says, when it ends, and when it was used.
pub type Row = (String, String, String, i64, i64);

#[derive(Debug, PartialEq)]
enum Next {
    Own,
    Other,
    Nobody,
}

/// A token without its secret.
pub fn label(token: &str) -> &str {
    token.split_once('/').map_or(token, |(label, _)| label)
}

fn until(t: i64, ms: i64) -> i64 {
    t + ms * 1_000
}

impl Key {
    pub fn holds(&self, token: &str, t: i64) -> bool {
        let lease = self.lease.as_ref();
        lease.is_some_and(|l| l.token.as_deref() == Some(token) && l.ends > t)
            || self.shares.get(token).is_some_and(|ends| *ends > t)
    }

    fn admits(&self, holders: i32, t: i64) -> bool {
        let sharing = self.shares.values().filter(|ends| **ends > t).count();
        self.lease.as_ref().is_some_and(|lease| lease.ends <= t)
            && (holders == 0 || holders as usize > sharing)
    }

    fn use_at(&mut self, t: i64) {
        if let Some(lease) = &mut self.lease {
            lease.used = t;
        }
    }

    fn enter(&mut self, token: &str, ttl: i64, holders: i32, fences: &str, t: i64) {
        self.given.insert(token.to_owned(), fences.to_owned());
        let mut ends = until(t, ttl);
        if holders == 1 {
            let before = self.lease.as_ref().filter(|l| l.token.as_deref() == Some(token));
            ends = ends.max(before.map_or(0, |lease| lease.ends));
            self.lease = Some(Lease { token: Some(token.to_owned()), ends, used: t });
        } else {
            let before = self.shares.entry(token.to_owned()).or_default();
            *before = ends.max(*before);
        }
    }

    fn note_sharing(&mut self, t: i64) {
        self.shares.retain(|_, ends| *ends > t);
        if let Some(lease) = &mut self.lease {
            *lease = Lease { token: None, ends: 0, used: t };
        }
    }

    fn next_fences(&mut self, wanted: bool, t: i64) -> Option<String> {
        let last = match (self.writing, self.fence) {
            (Some(_), _) => return None,
            (_, None) if !wanted => return Some(String::new()),
            (_, before) => t.max(before.map_or(0, |fence| fence.last + 1)),
        };
        let before = self.fence;
        let first = before.map_or(last, |b| (b.last + 1).max(last - FENCES_AT_ONCE + 1));
        let checked = before.map_or(0, |before| before.checked);
        self.fence = Some(Fence { first, last, checked, aged: false });
        Some(match wanted {
            false => String::new(),
            true if first == last => last.to_string(),
            true => format!("{first}-{last}"),
        })
    }

    fn pass(&mut self, token: &str, t: i64, pushes: &mut Vec<(String, String)>) -> Next {
        let mut shared = false;
        let next = loop {
            let Some(Waiter { ask, holders, ends }) = self.queue.first().cloned() else {
                break Next::Nobody;
            };
            if ends <= t {
                self.queue.retain(|waiter| waiter.ends > t);
                continue;
            }
            let admits = self.admits(holders, t);
            if !admits || ask.token == token {
                break if admits { Next::Own } else { Next::Other };
            }
            let (id, channel) = (ask.id.unwrap_or_default(), ask.channel.unwrap_or_default());
            let Some(fences) = self.next_fences(ask.fenced, t) else { break Next::Other };
            let window = ask.ttl.min(HAND_OFF);
            self.enter(&ask.token, window, holders, &fences, t);
            shared |= holders != 1;
            self.queue.remove(0);
            let fences = if fences.is_empty() { "0" } else { &fences };
            pushes.push((channel, format!("{id}|{fences}|{t}|{window}")));
        };
        if shared {
            self.note_sharing(t);
        }
        next
    }

    fn join(&mut self, waiter: Waiter) -> i32 {
        let (ask, queue) = (&waiter.ask, &mut self.queue);
        let rank = queue.iter().position(|other| other.ask.token == ask.token);
        match rank {
            Some(rank) => queue[rank] = Waiter { holders: queue[rank].holders, ..waiter },
            None => queue.push(waiter),
        }
        rank.unwrap_or(queue.len() - 1) as i32
    }

    /// Where a request waits: one of the holders, and what is left of its lease.
    fn contended(&self, holders: i32, t: i64) -> (Vec<String>, i64) {
        let lease = self.lease.as_ref().filter(|lease| lease.ends > t);
        let live: Vec<_> = self.shares.iter().filter(|(_, ends)| **ends > t).collect();
        let shown = |token: &str| match token.ends_with("/kept") {
            true => format!("{}/{:032}", label(token), 0),
            false => format!("{}/shared", label(token)),
        };
        let left = |ends: i64| (ends - t + 999) / 1_000;
        if let Some(Lease { token, ends, .. }) = lease {
            return (token.iter().map(|token| shown(token)).collect(), left(*ends));
        }
        let ends = live.iter().map(|(_, ends)| **ends);
        let Some(last) = ends.clone().max() else { return (Vec::new(), 100) };
        let rest = if holders > 1 { ends.min() } else { Some(last) };
        let shown = live.iter().filter(|(_, ends)| **ends == last).map(|(token, _)| shown(token));
        (shown.collect(), left(rest.unwrap_or_default()))
    }

    /// What these tokens have ends at `t`.
    pub fn expire(&mut self, of: &str, t: i64) {
        let Self { lease, shares, queue, .. } = self;
        let lease = lease.iter_mut().flat_map(|l| Some((l.token.as_deref()?, &mut l.ends)));
        let shares = shares.iter_mut().map(|(token, ends)| (&**token, ends));
        let queue = queue.iter_mut().map(|waiter| (&*waiter.ask.token, &mut waiter.ends));
        for (token, ends) in lease.chain(shares).chain(queue) {
            if label(token) == of {
                *ends = t;
            }
        }
    }

    /// What the fence of a writer becomes: `Ok(None)` for one that is late, and an error for a
    /// fence that was never granted.
    pub fn check_fence(&self, f: i64) -> Result<Option<Fence>, ()> {
        let last = self.fence.filter(|last| f <= last.last).ok_or(())?;
        let may_write = f >= last.first.max(last.checked);
        Ok(may_write.then_some(Fence { checked: f, aged: false, ..last }))
    }

    /// The rows, in the order of `LOOK`.
    pub fn rows(&self) -> [Vec<Row>; 4] {
        let row = |kind: &str, what, ends, used| (kind.into(), self.name.clone(), what, ends, used);
        let fence = |f: &Fence| row("fence", format!("{} {} {}", f.first, f.last, f.checked), 0, 0);
        let waiter = |Waiter { ask, holders, ends }: &Waiter| {
            let fenced = if ask.fenced { "t" } else { "f" };
            let (id, channel) = (ask.id.as_deref(), ask.channel.as_deref());
            let (id, channel) = (id.unwrap_or_default(), channel.unwrap_or_default());
            let Ask { token, ttl, callers, .. } = ask;
            let what = format!("{token} {ttl} {holders} {fenced} {id} {channel} {callers}");
            row("waiter", what, *ends, 0)
        };
        let lease =
            |l: &Lease| row("lease", l.token.clone().unwrap_or_else(|| "-".into()), l.ends, l.used);
        let share = |(token, ends): (&String, &i64)| row("share", token.clone(), *ends, 0);
        [
            self.fence.iter().map(fence).collect(),
            self.lease.iter().map(lease).collect(),
            self.shares.iter().map(share).collect(),
            self.queue.iter().map(waiter).collect(),
        ]
    }
}

/// Asks; `None` while a transaction has locked the last fence of a key that the token holds.
pub fn ask(keys: &mut [Key], ask: &Ask, t: i64) -> Option<Reply> {
    let mut reply = Reply::default();
    for k in &ask.keys {
        keys[*k].lease.get_or_insert(Lease { token: None, ends: 0, used: t });
    }
    for (nth, (k, holders)) in ask.keys.iter().zip(&ask.holders).enumerate() {
        let key = &mut keys[*k];
        let mine = key.holds(&ask.token, t);
        let waiter = Waiter { ask: ask.clone(), holders: *holders, ends: until(t, ask.waits) };
        let waits = ask.id.is_some() && !mine;
        if waits && !key.queue.is_empty() {
            key.join(waiter.clone());
        }
        let held = mine
            || match key.pass(&ask.token, t, &mut reply.pushes) {
                Next::Own => true,
                Next::Nobody => key.admits(*holders, t),
                Next::Other => false,
            };
        let given = key.given.get(&ask.token).filter(|given| mine && !given.is_empty()).cloned();
        let next = |key: &mut Key| if held { key.next_fences(ask.fenced, t) } else { None };
        match given.or_else(|| next(key)) {
            Some(fences) => reply.fences.push(fences),
            None if mine => return None,
            None => {
                let (holder, rest) = key.contended(*holders, t);
                (reply.nth, reply.holder, reply.rest) = (Some(nth as i32), holder, Some(rest));
                reply.rank = waits.then(|| key.join(waiter));
                reply.fences.clear();
                return Some(reply);
            }
        }
    }
    for ((k, holders), fences) in ask.keys.iter().zip(&ask.holders).zip(&mut reply.fences) {
        let key = &mut keys[*k];
        key.enter(&ask.token, ask.ttl, *holders, fences, t);
        if !ask.fenced {
            fences.clear();
        }
        key.queue.retain(|waiter| waiter.ask.token != ask.token);
        if *holders != 1 {
            key.note_sharing(t);
            key.pass(&ask.token, t, &mut reply.pushes);
        }
    }
    Some(reply)
}

/// Each key at a time of its own.
pub fn release(keys: &mut [Key], of: &[usize], token: &str, keep: i64, at: [i64; 2]) -> Reply {
    let (mut reply, mut released) = (Reply::default(), 0);
    let kept = format!("{}/kept", label(token));
    for (k, t) in at.into_iter().enumerate().filter(|(k, _)| of.contains(k)) {
        let key = &mut keys[k];
        let Some(lease) = &mut key.lease else { continue };
        key.queue.retain(|waiter| waiter.ask.token != token);
        let mine = if lease.token.as_deref() == Some(token) {
            let keeps = lease.ends > t && keep > 0;
            let mine = Some(lease.ends > t);
            (lease.token, lease.ends) =
                if keeps { (Some(kept.clone()), until(t, keep)) } else { (None, 0) };
            mine
        } else {
            let mine = match token.ends_with("/shared") {
                true => std::mem::take(&mut key.shares).into_values().map(|ends| ends > t).max(),
                false => key.shares.remove(token).map(|ends| ends > t),
            };
            if mine.is_some() {
                key.use_at(t);
            }
            if mine == Some(true) && keep > 0 {
                key.shares.insert(kept.clone(), until(t, keep));
            }
            mine
        };
        released += usize::from(mine == Some(true));
        key.pass(token, t, &mut reply.pushes);
        if let Some(Waiter { ask: Ask { id: Some(id), channel, .. }, .. }) = key.queue.first()
            && mine == Some(true)
            && keep > 0
        {
            let push = format!("{}|0|0|0", &id[..20]);
            reply.pushes.push((channel.clone().unwrap_or_default(), push));
        }
    }
    reply.held = vec![released == of.len()];
    reply
}

pub fn renew(keys: &mut [Key], renewals: &[(usize, String, i64)], t: i64) -> Reply {
    let renew = |(k, token, ttl): &(usize, String, i64)| {
        let key = &mut keys[*k];
        let held = key.holds(token, t);
        let later = |ends: &mut i64| *ends = until(t, *ttl).max(*ends);
        match key.lease.as_mut().filter(|lease| lease.token.as_ref() == Some(token)) {
            Some(lease) if held => later(&mut lease.ends),
            _ if held => {
                key.shares.get_mut(token).map(later);
                key.use_at(t);
            }
            _ => {}
        }
        held
    };
    Reply { held: renewals.iter().map(renew).collect(), ..Reply::default() }
}

/// Makes the leases and the fences of some keys such as were last used at `then`, and forgets those
/// of before `unused`.
pub fn tidy(
    keys: &mut [Key],
    [leases, fences]: &[Vec<bool>; 2],
    then: i64,
    (unused, t): (i64, i64),
) {
    for ((key, lease), fence) in keys.iter_mut().zip(leases).zip(fences) {
        let writes = key.writing.is_some();
        if *lease {
            key.use_at(then);
        }
        if let Some(fence) = key.fence.as_mut().filter(|_| *fence && !writes) {
            fence.aged = true;
        }
        let held = key.shares.values().any(|ends| *ends > t) || !key.queue.is_empty();
        key.lease.take_if(|lease| lease.used < unused && lease.ends < t && !held);
        let (known, fence) = (key.lease.is_some(), &mut key.fence);
        fence.take_if(|fence| fence.aged && !writes && !known);
        key.shares.retain(|_, ends| *ends >= unused);
    }
}
