//! The queue of a key, seen from outside.

use std::pin::Pin;
use std::sync::Arc;

use crate::times::{LONG_TTL, ms};
use crate::{Admin, Backend, Postgres, Server, eventually, queue_of};

/// A time of the server, in milliseconds, that does not come.
pub const FAR: u64 = 9_999_999_999_999;

/// Milliseconds in which a waiter is in the queue, or in the line of its process.
const IN_LINE: usize = 60;

/// Polls after which a caller is in the queue of its process.
const POLLS: usize = 5;

/// The waiters of a key.
pub struct Queue {
    seen_by: SeenBy,
    name: String,
}

enum SeenBy {
    /// `memory://` shows nothing.
    Nobody,
    Redis(Admin),
    Postgres(Arc<Postgres>),
}

impl Queue {
    /// The queue of a key of a backend.
    pub fn of(backend: &Backend, key: &str) -> Queue {
        if let Some(server) = backend.database() {
            return Queue { seen_by: SeenBy::Postgres(Arc::clone(server)), name: key.to_owned() };
        }
        let seen_by = match backend.url().starts_with("redis") {
            true => SeenBy::Redis(Admin::connect(backend.url())),
            false => SeenBy::Nobody,
        };
        Queue { seen_by, name: queue_of(key) }
    }

    /// The queue of a key on a server.
    pub fn at(server: &Server, key: &str) -> Queue {
        Queue { seen_by: SeenBy::Redis(server.admin()), name: queue_of(key) }
    }

    /// How many wait, where that can be seen.
    pub fn length(&mut self) -> Option<usize> {
        self.members().map(|members| members.len())
    }

    /// The waiters, where they can be seen.
    fn members(&mut self) -> Option<Vec<String>> {
        match &mut self.seen_by {
            SeenBy::Nobody => None,
            SeenBy::Redis(admin) => Some(admin.ask(&["ZRANGE", &self.name, "0", "-1"])),
            SeenBy::Postgres(server) => {
                let waiters = "SELECT token FROM lm1.waiter WHERE key = ";
                Some(server.ask(&format!("{waiters}'{}' ORDER BY place", self.name)))
            }
        }
    }

    /// Adds this many waiters of a dead process at the end, whose leases end at that time of the
    /// server, in milliseconds.
    pub fn crowd(&mut self, others: usize, until: u64) {
        let script = "for nth = 1, ARGV[1] do
            local token = 'other/' .. nth
            redis.call('ZADD', KEYS[1], 1000000 + nth, token)
            redis.call('HSET', KEYS[2], token, ARGV[2] .. '|60000|0|1|' .. nth .. '|lm1:other')
        end
        redis.call('PEXPIRE', KEYS[1], 60000)
        redis.call('PEXPIRE', KEYS[2], 60000)";
        let (queue, how) = (self.name.as_str(), self.name.replace("lm1:wq:", "lm1:ww:"));
        let words = ["EVAL", script, "2", queue, &how, &others.to_string(), &until.to_string()];
        let SeenBy::Redis(admin) = &mut self.seen_by else { panic!("no Redis server") };
        admin.ask::<()>(&words);
    }

    /// Has those of the dead process go.
    pub fn disperse(&mut self) {
        let script = "for _, token in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
            if string.sub(token, 1, 6) == 'other/' then
                redis.call('ZREM', KEYS[1], token)
                redis.call('HDEL', KEYS[2], token)
            end
        end";
        let (queue, how) = (self.name.as_str(), self.name.replace("lm1:wq:", "lm1:ww:"));
        if let SeenBy::Redis(admin) = &mut self.seen_by {
            admin.ask::<()>(&["EVAL", script, "2", queue, &how]);
        }
    }

    /// Waits until this many waiters are in the queue, where they can be seen.
    pub async fn reaches(&mut self, length: usize) {
        let claim = format!("{length} in the queue");
        let reached = || std::future::ready(self.length().is_none_or(|now| now == length));
        eventually(&claim, LONG_TTL / 4, reached).await;
    }

    /// Has time pass in which a waiter is in the queue of its process, which is not seen.
    pub async fn stands_in_line() {
        tokio::time::sleep(ms(IN_LINE as u64)).await;
    }

    /// Polls a future until it is in the queue, behind all that are there already. One whose
    /// process has the lock, or a place in the queue, waits in the queue of its process, and that
    /// is not seen: it has some time for it.
    pub async fn join<F: Future>(&mut self, waiter: F) -> Pin<Box<F>> {
        self.try_to_join(waiter).await.expect("it has to wait")
    }

    /// Polls a future of a process that has the lock, so that the caller is in the queue of its
    /// process. The store is not asked, which takes long on a loaded machine and shows nothing.
    pub async fn join_its_process<F: Future>(waiter: F) -> Pin<Box<F>> {
        let mut waiter = Box::pin(waiter);
        for _ in 0..POLLS {
            assert!(futures::poll!(&mut waiter).is_pending(), "it has to wait");
            tokio::time::sleep(ms(1)).await;
        }
        waiter
    }

    /// The same for one that may end before it stands there.
    pub async fn try_to_join<F: Future>(&mut self, waiter: F) -> Option<Pin<Box<F>>> {
        let mut waiter = Box::pin(waiter);
        let before = self.members();
        for _ in 0..IN_LINE {
            if futures::poll!(&mut waiter).is_ready() {
                return None;
            }
            // Others may leave meanwhile.
            let now = self.members().unwrap_or_default();
            if before.as_ref().is_some_and(|before| now.iter().any(|one| !before.contains(one))) {
                break;
            }
            tokio::time::sleep(ms(1)).await;
        }
        Some(waiter)
    }
}
