//! A call of a simulated process.

use std::time::Duration;

use fastrand::Rng;

use crate::processes::scenario::{LONGEST_TTL, ms, pick};

/// One call of the public API.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) pause: Duration,
    pub(crate) keys: Vec<usize>,
    pub(crate) ttl: Duration,
    pub(crate) renew: bool,
    pub(crate) wait: Wait,
    pub(crate) fenced: bool,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) body: Duration,
    /// How often the body looks at its lease.
    pub(crate) step: Duration,
    pub(crate) how: How,
    /// At which poll the call is dropped.
    pub(crate) dropped: Option<u32>,
    pub(crate) reenters: bool,
    pub(crate) extends: bool,
    /// Keeps another guard for longer than the one that releases the lock.
    pub(crate) shares: bool,
    /// Stores the call when its lock is busy.
    pub(crate) defers: bool,
    /// How others may hold the keys.
    pub(crate) sharing: Sharing,
    /// Blocks a thread.
    pub(crate) blocks: bool,
    /// From which poll on the call is not polled, and for how long.
    pub(crate) sleeps: Option<(u32, Duration)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    Exclusive,
    Shared,
    /// At most this number of holders.
    Permits(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    For(Duration),
    Forever,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// A guard, released or dropped.
    Guard { released: bool },
    /// A body, whose caller waits for the release or does not.
    Run { in_background: bool },
}

impl Call {
    /// A job, when it runs.
    pub(crate) fn of_deferred(key: usize) -> Self {
        Self {
            pause: Duration::ZERO,
            keys: vec![key],
            ttl: LONGEST_TTL,
            renew: false,
            wait: Wait::No,
            fenced: false,
            min_hold: None,
            max_hold: None,
            body: ms(10),
            step: ms(5),
            how: How::Run { in_background: false },
            dropped: None,
            reenters: false,
            extends: false,
            shares: false,
            defers: false,
            sharing: Sharing::Exclusive,
            blocks: false,
            sleeps: None,
        }
    }

    /// Lets some calls share their keys. A key has one number of permits.
    pub(crate) fn shares_keys(&mut self, kind: Sharing, random: &mut Rng) {
        if !self.defers && random.u8(..3) > 0 {
            (self.sharing, self.min_hold) = (kind, None);
        }
    }

    /// Lets some calls block a thread, which nobody can drop.
    pub(crate) fn may_block(&mut self, random: &mut Rng) {
        if random.u8(..3) > 0 {
            (self.blocks, self.dropped) = (true, None);
            (self.extends, self.shares) = (false, false);
        }
    }

    /// Lets some calls not be polled for a while, like one beside a branch of a `select!` that
    /// awaits something else.
    pub(crate) fn may_sleep(&mut self, random: &mut Rng) {
        // Other locks stay for their ttl then.
        let has_queue = self.keys.len() == 1 && self.sharing == Sharing::Exclusive;
        if has_queue && !self.blocks && random.u8(..3) == 0 {
            // Most likely after the first poll, in which the call asks.
            let nth = *pick(random, &[1, 1, 1, 2, 3, 4, 5, 6, 8]);
            let time = *pick(random, &[60, 60, 250, 1_000, 2_500, 6_000, 6_000]);
            self.sleeps = Some((nth, ms(time)));
        }
    }

    pub(crate) fn draw(random: &mut Rng, keys: usize, shortest: Duration) -> Self {
        let ttl = ms(*pick(random, &[80, 150, 400, 1_000, 1_000, 2_500, 6_000])).max(shortest);
        let renew = random.u8(..3) == 0;
        let body = match random.u8(..7) {
            0..3 => ms(random.u64(..15)),
            3..5 => ms(random.u64(..300)),
            // Until just before the end of the lease.
            5 => ttl.mul_f64(0.9 + 0.1 * random.f64()),
            // Beyond the ttl.
            _ => ttl.mul_f64(0.5 + random.f64() * 2.0),
        };
        let wait = match random.u8(..8) {
            0..2 => Wait::No,
            2..5 => Wait::For(ms(random.u64(1..4_000))),
            _ => Wait::Forever,
        };
        let mut chosen = vec![random.usize(..keys)];
        if keys > 1 && random.u8(..5) == 0 {
            chosen.push((chosen[0] + 1) % keys);
        }
        Self {
            pause: ms(*pick(random, &[0, 0, 1, 5, 50, 400])),
            keys: chosen,
            ttl,
            renew,
            wait,
            fenced: random.bool(),
            min_hold: (random.u8(..12) == 0).then(|| ttl.mul_f64(random.f64() / 2.0)),
            max_hold: (renew && random.u8(..6) == 0).then(|| ttl + ms(random.u64(..500))),
            body,
            step: ms(*pick(random, &[1, 5, 20, 90])).max(body / 40),
            how: match random.u8(..4) {
                0 => How::Guard { released: true },
                1 => How::Guard { released: false },
                2 => How::Run { in_background: false },
                _ => How::Run { in_background: true },
            },
            dropped: (random.u8(..6) == 0).then(|| random.u32(1..12)),
            reenters: random.u8(..8) == 0,
            extends: random.u8(..12) == 0,
            shares: random.u8(..10) == 0,
            ..Self::of_deferred(0)
        }
    }
}
