//! What the clients have done and were told, as they know it themselves.

use std::collections::HashMap;

use crate::store::{Look, PROCESSES, Push};

/// For how long a lock is handed off until it is confirmed, in milliseconds.
pub const CLAIM: u64 = 5_000;
/// For how long a place is kept, in milliseconds.
pub const PLACE: u64 = 10_000;
/// For how long the last fence is kept, in milliseconds.
pub const FENCE_KEPT: u64 = 3 * 24 * 60 * 60 * 1_000;

/// One thing that happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The acquire script, for `lease` milliseconds in a line of `places`; none for an attempt.
    /// An answer that is not heard is lost in flight.
    Ask {
        client: usize,
        places: usize,
        lease: u64,
        heard: bool,
    },
    /// The plain SET of an attempt without a fence.
    Set {
        client: usize,
        heard: bool,
    },
    Release {
        client: usize,
        keep: u64,
    },
    /// With another ttl, perhaps, than the lock was asked for with.
    Renew {
        client: usize,
        ttl: u64,
    },
    /// The holder's lease runs out.
    Expire,
    ForeignSet,
    ForeignDelete,
    /// The last fence is forgotten.
    FenceForgotten,
    /// The last fence is ahead of the server's clock, as after a clock was set back.
    FenceAhead(u64),
    /// It never acts again.
    Crash {
        client: usize,
    },
    /// Nor does any client of this process, and its subscription ends.
    CrashProcess {
        process: usize,
    },
    Down {
        process: usize,
    },
    Up {
        process: usize,
    },
    Flush,
    /// No client asks for as long as the queue is kept.
    Silence,
    /// Whether the scripts may publish, and ask who listens.
    Publish(bool),
    /// Whether the server has memory left.
    Memory(bool),
}

impl Event {
    /// Whose doing it is.
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
    Granted(Option<u64>),
    /// What is left, who holds it, and the rank and the time for who waits.
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
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stage {
    /// Has asked, and not been told yet that it holds the lock.
    Waiting,
    /// An attempt whose answer was lost.
    Unanswered,
    Holding,
    Gone,
}

/// The last request of a waiter.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Its place is kept until some moment between the two, in microseconds.
    pub until: (u64, u64),
    /// The dead are to be told by their silence.
    pub probe: bool,
}

#[derive(Debug)]
pub struct Client {
    pub token: String,
    pub process: usize,
    pub incarnation: usize,
    pub fenced: bool,
    pub ttl: u64,
    /// The length of the queue it asks for; none for an attempt.
    pub places: usize,
    pub stage: Stage,
    pub crashed: bool,
    /// The lock was its own and ran out.
    pub lost: bool,
    pub asked_since_lost: bool,
    pub grants: u32,
    /// The fence of its last grant, told or not.
    pub fence: Option<u64>,
    pub place: Option<Place>,
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
    /// The waiters that should be in the queue, in this order.
    pub line: Vec<usize>,
    pub last_fence: u64,
    /// The scripts may neither publish nor ask who listens.
    pub muted: bool,
    /// The server has no memory left.
    pub full: bool,
    by_token: HashMap<String, usize>,
}

impl World {
    /// A client that has done nothing yet.
    pub fn join(&mut self, process: usize, fenced: bool, ttl: u64, places: usize) -> usize {
        let number = self.clients.len();
        let token = format!("c{number}/{:032x}", number + 1);
        self.by_token.insert(token.clone(), number);
        self.clients.push(Client {
            token,
            process,
            incarnation: self.processes[process].incarnation,
            fenced,
            ttl,
            places,
            stage: if places > 0 { Stage::Waiting } else { Stage::Unanswered },
            crashed: false,
            lost: false,
            asked_since_lost: false,
            grants: 0,
            fence: None,
            place: None,
        });
        number
    }

    pub fn channel(&self, process: usize) -> String {
        format!("lm1:{process}-{}", self.processes[process].incarnation)
    }

    pub fn by_token(&self, token: &str) -> Option<usize> {
        self.by_token.get(token).copied()
    }

    /// Whose the lock is.
    pub fn holder(&self, look: &Look) -> Option<usize> {
        self.by_token(look.held.as_deref()?)
    }

    /// Whether a message to the client is heard in its process.
    pub fn reachable(&self, client: usize) -> bool {
        let client = &self.clients[client];
        let process = self.processes[client.process];
        process.up && process.incarnation == client.incarnation
    }

    /// Whether the server must take it for alive during the step, if it is in the queue.
    pub fn lives(&self, client: usize, step: &Step) -> bool {
        let asks = step.event.actor() == Some(client);
        self.clients[client].place.is_some_and(|place| {
            let answers = !place.probe || self.muted || self.reachable(client);
            step.event != Event::Silence && (asks || place.until.0 > step.after.at && answers)
        })
    }

    /// The client that has the lock since this step and has not asked for it in this step.
    pub fn handed(&self, step: &Step) -> Option<usize> {
        let holder = self.holder(&step.after)?;
        let new = step.before.held != step.after.held && step.event.actor() != Some(holder);
        new.then_some(holder)
    }

    /// The head of the queue when the lock stays for a while after its release, or is left to
    /// nobody, as too many dead ones were in front; or when the first leaves and no client of ours
    /// holds the lock. If that one hears.
    pub fn told_to_ask(&self, step: &Step) -> Option<usize> {
        let Event::Release { client, keep, .. } = step.event else { return None };
        let token = &self.clients[client].token;
        let held = step.before.held.as_ref() == Some(token);
        let is_told = if held {
            keep > 0 || step.after.held.is_none()
        } else {
            let ours = |held: &String| self.by_token(held).is_some() || self.is_kept(held);
            step.before.rank(token) == Some(0) && !step.after.held.as_ref().is_some_and(ours)
        };
        let (first, _) = step.after.line.first().filter(|_| is_told)?;
        let first = self.by_token(first)?;
        (self.reachable(first) && !self.muted).then_some(first)
    }

    /// Whether this is what stays of a token after its release.
    pub fn is_kept(&self, held: &str) -> bool {
        held.ends_with(&format!("/{:032}", 0))
    }

    /// Whether the server must take it for dead during the step, if it is in the queue.
    pub fn is_dead(&self, client: usize, step: &Step) -> bool {
        let asks = step.event.actor() == Some(client);
        self.clients[client].place.is_some_and(|place| {
            let silent = place.probe && !self.muted && !self.reachable(client);
            !asks && (place.until.1 < step.before.at || silent)
        })
    }

    /// Whether a full server is to refuse who asks: it has neither the lock nor a place.
    pub fn is_refused(&self, client: usize, before: &Look) -> bool {
        let token = &self.clients[client].token;
        let is_in_line = self.clients[client].places > 0 && before.waits(token);
        self.full && before.held.as_ref() != Some(token) && !is_in_line
    }

    /// Takes note of what has happened. `lost`: what was pushed got lost in flight.
    pub fn apply(&mut self, step: &Step, lost: bool) {
        let granted = self.holder(&step.after).filter(|_| step.before.held != step.after.held);
        if let Some(client) = granted {
            let fence = step.after.fence.filter(|_| self.clients[client].fenced);
            let granted = &mut self.clients[client];
            granted.grants += 1;
            granted.fence = fence;
            (granted.lost, granted.asked_since_lost) = (false, false);
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
            Event::Ask { client, lease, heard, places } => {
                let probe = self.reachable(client);
                let asking = &mut self.clients[client];
                asking.asked_since_lost = true;
                if step.after.waits(&asking.token) {
                    let until = |at: u64| (at / 1_000 + lease) * 1_000;
                    let until = (until(step.before.at), until(step.after.at));
                    asking.place = Some(Place { until, probe });
                }
                match &step.reply {
                    Reply::Granted(_) if heard => asking.stage = Stage::Holding,
                    Reply::Busy(_, _, Some((-1, _))) if heard => asking.stage = Stage::Gone,
                    Reply::Busy(..) if heard && places == 0 => asking.stage = Stage::Gone,
                    _ => {}
                }
            }
            Event::Set { client, heard: true } => {
                let set = step.reply == Reply::Own(true);
                self.clients[client].stage = if set { Stage::Holding } else { Stage::Gone };
            }
            Event::Release { client, .. } => self.clients[client].stage = Stage::Gone,
            Event::Renew { client, .. } => {
                // A client that is told of its loss has nothing to release.
                let renewing = &mut self.clients[client];
                if step.reply == Reply::Own(false) && renewing.stage == Stage::Holding {
                    renewing.lost = true;
                }
            }
            Event::Expire => {
                if let Some(client) = self.holder(&step.before) {
                    self.clients[client].lost = true;
                    self.clients[client].asked_since_lost = false;
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
        self.line = step.after.line.iter().filter_map(|(token, _)| self.by_token(token)).collect();
        for client in 0..self.clients.len() {
            if !self.line.contains(&client) {
                self.clients[client].place = None;
            }
        }
    }
}
