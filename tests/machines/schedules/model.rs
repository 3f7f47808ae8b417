//! The actions of the clients, and the replies and pushes that they received.

use std::collections::HashMap;

use crate::store::{Look, PROCESSES, Push};

/// The time for which a lock is handed off until it is confirmed, in milliseconds.
pub const CONFIRM_WINDOW: u64 = 5_000;
/// The time for which a waiter stays in the queue without asking, in milliseconds.
pub const WAITER_LEASE: u64 = 10_000;
/// The retention of the last fence, in milliseconds.
pub const FENCE_TTL: u64 = 3 * 24 * 60 * 60 * 1_000;

/// One thing that happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The acquire script, for `lease` milliseconds in a queue of `max_queue`; none for an attempt.
    /// A reply that is not `answered` is lost in flight.
    Ask { client: usize, max_queue: usize, lease: u64, answered: bool },
    /// The plain SET of an attempt without a fence.
    Set { client: usize, answered: bool },
    /// The lock is kept for `keep` milliseconds.
    Release { client: usize, keep: u64 },
    /// With another ttl, perhaps, than the lock was asked for with.
    Renew { client: usize, ttl: u64 },
    /// The holder's lease runs out.
    Expire,
    /// The lease of one holder of several runs out.
    Over { client: usize },
    /// Another program sets the key, if it is free.
    ForeignSet,
    /// Another program deletes its own key.
    ForeignDelete,
    /// Another program deletes the key, whoever has it.
    Delete,
    /// The last fence is forgotten.
    FenceForgotten,
    /// The last fence is ahead of the server's clock, as after a clock was set back.
    FenceAhead(u64),
    /// It never acts again.
    Crash { client: usize },
    /// Nor does any client of this process, and its subscription ends.
    CrashProcess { process: usize },
    /// Its subscription ends.
    Down { process: usize },
    /// It subscribes.
    Up { process: usize },
    /// The server forgets the scripts.
    Flush,
    /// No client asks until the queue has expired.
    Silence,
    /// Whether the scripts may publish, and ask for subscribers.
    Publish(bool),
    /// Whether the server has memory left.
    Memory(bool),
}

impl Event {
    /// The client that acts.
    pub fn actor(&self) -> Option<usize> {
        match *self {
            Event::Ask { client, .. }
            | Event::Set { client, .. }
            | Event::Release { client, .. }
            | Event::Renew { client, .. } => Some(client),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// With the first and the last fence, if it has fences.
    Granted(Option<(u64, u64)>),
    /// The time left, the holder, and for a waiter its rank and the time.
    Busy(i64, String, Option<(i64, u64)>),
    /// By a server without memory.
    Refused,
    Own(bool),
    None,
}

/// An event with what was there before and after.
#[derive(Debug, Clone)]
pub struct Step {
    pub event: Event,
    pub reply: Reply,
    pub pushes: Vec<Push>,
    pub before: Look,
    pub after: Look,
    /// Whether the exhaustive model allows it.
    pub allowed: Result<(), String>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stage {
    /// Has asked, and has received no grant yet.
    Waiting,
    /// An attempt whose answer was lost.
    Unanswered,
    Holding,
    Gone,
}

/// The last request of a waiter.
#[derive(Debug, Clone, Copy)]
pub struct LastRequest {
    /// It leaves the queue at a moment between the two, in microseconds.
    pub until: (u64, u64),
    /// Whether the scripts check its subscription before they grant.
    pub probe: bool,
}

#[derive(Debug)]
pub struct Client {
    pub token: String,
    pub process: usize,
    pub incarnation: usize,
    /// It is let in beside fewer holders: 1 is exclusive, 0 no limit.
    pub limit: u32,
    pub fenced: bool,
    pub ttl: u64,
    /// The length of the queue it asks for; none for an attempt.
    pub max_queue: usize,
    pub stage: Stage,
    pub crashed: bool,
    /// The lock was its own and ran out.
    pub lost: bool,
    pub last_request: Option<LastRequest>,
}

#[derive(Debug, Default, Clone, Copy)]
pub struct Process {
    pub up: bool,
    pub incarnation: usize,
}

#[derive(Debug, Default)]
pub struct World {
    pub clients: Vec<Client>,
    pub processes: [Process; PROCESSES],
    /// Some clients share the lock.
    pub shares: bool,
    /// The waiters that should be in the queue, in this order.
    pub queue: Vec<usize>,
    pub last_fence: u64,
    /// The scripts may neither publish nor ask for subscribers.
    pub muted: bool,
    /// The server has no memory left.
    pub full: bool,
    by_token: HashMap<String, usize>,
}

impl World {
    /// A client that has done nothing yet.
    pub fn join(&mut self, process: usize, fenced: bool, ttl: u64, max_queue: usize) -> usize {
        let number = self.clients.len();
        // Some that share have a label in common, like the callers of one function.
        let label = if self.shares { number % 2 } else { number };
        let token = format!("c{label}/{:032x}", number + 1);
        self.by_token.insert(token.clone(), number);
        self.clients.push(Client {
            token,
            process,
            incarnation: self.processes[process].incarnation,
            limit: 1,
            fenced,
            ttl,
            max_queue,
            stage: if max_queue > 0 { Stage::Waiting } else { Stage::Unanswered },
            crashed: false,
            lost: false,
            last_request: None,
        });
        number
    }

    pub fn channel(&self, process: usize) -> String {
        format!("lm1:{process}-{}", self.processes[process].incarnation)
    }

    pub fn by_token(&self, token: &str) -> Option<usize> {
        self.by_token.get(token).copied()
    }

    /// The holder.
    pub fn holder(&self, look: &Look) -> Option<usize> {
        self.by_token(look.held.as_deref()?)
    }

    /// Whether a push reaches the process of the client.
    pub fn reachable(&self, client: usize) -> bool {
        let client = &self.clients[client];
        let process = self.processes[client.process];
        process.up && process.incarnation == client.incarnation
    }

    /// Whether the server must take it for alive during the step, if it is in the queue.
    pub fn lives(&self, client: usize, step: &Step) -> bool {
        let asks = step.event.actor() == Some(client);
        self.clients[client].last_request.is_some_and(|last_request| {
            let answers = !last_request.probe || self.muted || self.reachable(client);
            step.event != Event::Silence
                && (asks || last_request.until.0 > step.after.at && answers)
        })
    }

    /// The client that has the lock since this step and has not asked for it in this step.
    pub fn handed_off(&self, step: &Step) -> Option<usize> {
        let holder = self.holder(&step.after)?;
        let new = step.before.held != step.after.held && step.event.actor() != Some(holder);
        new.then_some(holder)
    }

    /// The head of the queue, if its push reaches it, when the scripts ask it to poll:
    /// - the lock is kept for a while after its release;
    /// - the lock is free, because too many dead waiters were at the head;
    /// - the head has left, and another program holds the lock.
    pub fn asked_to_poll(&self, step: &Step) -> Option<usize> {
        let Event::Release { client, keep, .. } = step.event else { return None };
        let token = &self.clients[client].token;
        let held = step.before.held.as_ref() == Some(token);
        let is_pushed = if held {
            keep > 0 || step.after.held.is_none()
        } else if step.before.held.is_none() {
            step.after.held.is_none()
        } else {
            let ours = |held: &String| self.by_token(held).is_some() || self.is_kept(held);
            step.before.rank(token) == Some(0) && !step.after.held.as_ref().is_some_and(ours)
        };
        let (first, _) = step.after.queue.first().filter(|_| is_pushed)?;
        let first = self.by_token(first)?;
        (self.reachable(first) && !self.muted).then_some(first)
    }

    /// Whether this is the value of a lock that is kept after its release.
    pub fn is_kept(&self, held: &str) -> bool {
        held.ends_with(&format!("/{:032}", 0))
    }

    /// Whether the server must take it for dead during the step, if it is in the queue.
    pub fn is_dead(&self, client: usize, step: &Step) -> bool {
        let asks = step.event.actor() == Some(client);
        self.clients[client].last_request.is_some_and(|last_request| {
            let silent = last_request.probe && !self.muted && !self.reachable(client);
            !asks && (last_request.until.1 < step.before.at || silent)
        })
    }

    /// Whether a full server refuses the request: its token neither holds the lock nor waits.
    pub fn is_refused(&self, client: usize, before: &Look) -> bool {
        let token = &self.clients[client].token;
        let is_in_line = self.clients[client].max_queue > 0 && before.waits(token);
        self.full && before.held.as_ref() != Some(token) && !is_in_line
    }

    /// Records what has happened. With `lost` the pushes are lost in flight.
    pub fn apply(&mut self, step: &Step, lost: bool) {
        let granted = self.holder(&step.after).filter(|_| step.before.held != step.after.held);
        if let Some(client) = granted {
            self.clients[client].lost = false;
        }
        self.last_fence = self.last_fence.max(step.after.fence.unwrap_or(0));
        for push in &step.pushes {
            if let Some(client) = self.clients.get_mut(push.number)
                && client.stage == Stage::Waiting
                && !client.crashed
                && !lost
                && push.px > 0
            {
                client.stage = Stage::Holding;
            }
        }
        match step.event {
            Event::Ask { client, lease, answered, max_queue } => {
                let probe = self.reachable(client);
                let asking = &mut self.clients[client];
                if step.after.waits(&asking.token) {
                    let until = |at: u64| (at / 1_000 + lease) * 1_000;
                    let until = (until(step.before.at), until(step.after.at));
                    asking.last_request = Some(LastRequest { until, probe });
                }
                match &step.reply {
                    Reply::Granted(_) if answered => asking.stage = Stage::Holding,
                    Reply::Busy(_, _, Some((-1, _))) if answered => asking.stage = Stage::Gone,
                    Reply::Busy(..) if answered && max_queue == 0 => asking.stage = Stage::Gone,
                    _ => {}
                }
            }
            Event::Set { client, answered: true } => {
                let set = step.reply == Reply::Own(true);
                self.clients[client].stage = if set { Stage::Holding } else { Stage::Gone };
            }
            Event::Release { client, .. } | Event::Over { client } => {
                self.clients[client].stage = Stage::Gone;
            }
            Event::Renew { client, .. } => {
                // A client that knows of its loss has nothing to release.
                let renewing = &mut self.clients[client];
                if step.reply == Reply::Own(false) && renewing.stage == Stage::Holding {
                    renewing.lost = true;
                }
            }
            Event::Expire => {
                if let Some(client) = self.holder(&step.before) {
                    self.clients[client].lost = true;
                }
            }
            Event::Crash { client } => self.clients[client].crashed = true,
            Event::CrashProcess { process } => {
                self.processes[process].up = false;
                self.processes[process].incarnation += 1;
                for client in self.clients.iter_mut().filter(|c| c.process == process) {
                    client.crashed = true;
                }
            }
            Event::Down { process } => self.processes[process].up = false,
            Event::Up { process } => self.processes[process].up = true,
            Event::Publish(may) => self.muted = !may,
            Event::Memory(left) => self.full = !left,
            _ => {}
        }
        // Whoever shares the lock has received its grant.
        for client in self.clients.iter_mut().filter(|_| self.shares) {
            match client.stage {
                Stage::Waiting if step.after.holds(&client.token) => client.stage = Stage::Holding,
                Stage::Holding if !step.after.holds(&client.token) => client.stage = Stage::Gone,
                _ => {}
            }
        }
        self.queue =
            step.after.queue.iter().filter_map(|(token, _)| self.by_token(token)).collect();
        for client in 0..self.clients.len() {
            if !self.queue.contains(&client) {
                self.clients[client].last_request = None;
            }
        }
    }
}
