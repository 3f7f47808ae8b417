//! The actions of callers that share a lock, and of exclusive ones among them.

use crate::model::Reply;
use crate::store::{Look, PROCESSES};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    /// Asks, and waits in the queue for a lease of this many milliseconds; 0 does not wait.
    Ask {
        client: usize,
        lease: u64,
    },
    Release {
        client: usize,
        keep: u64,
    },
    Renew {
        client: usize,
        ttl: u64,
    },
    /// Its lease ends by itself.
    Over {
        client: usize,
    },
    ForeignSet,
    ForeignDelete,
    Up {
        process: usize,
    },
    Down {
        process: usize,
    },
    Flush,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stage {
    Waiting,
    Holding,
    Gone,
}

#[derive(Debug)]
pub struct Client {
    pub token: String,
    pub process: usize,
    pub limit: u32,
    pub fenced: bool,
    pub ttl: u64,
    pub stage: Stage,
    /// When it leaves the queue at the earliest, in microseconds, and whether its process then
    /// received pushes.
    pub waits: Option<(u64, bool)>,
}

/// One step of a schedule, as the invariants see it.
pub struct Step {
    pub event: Event,
    pub reply: Reply,
    pub before: Look,
    pub after: Look,
}

pub struct World {
    pub clients: Vec<Client>,
    pub up: [bool; PROCESSES],
}

impl World {
    /// Whether the server must take a waiter for alive.
    pub fn lives(&self, client: usize, at: u64) -> bool {
        let Client { waits, process, .. } = self.clients[client];
        waits.is_some_and(|(until, probed)| until > at && (!probed || self.up[process]))
    }

    pub fn by_token(&self, token: &str) -> Option<usize> {
        self.clients.iter().position(|client| client.token == token)
    }
}
