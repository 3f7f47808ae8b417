//! Schedules with waiters that sleep, and how long they idle the key in all.

use super::server::{MS, S};
use super::world::{Event, Mode, Setup, Sleep, World};

/// Longer than any schedule.
const FOREVER: u64 = 100_000 * S;

impl World {
    /// Ten waiters that are never polled again, between ten that are polled at once. Those asleep
    /// are passed over once they have slept through an offer: they cost the time of some offers
    /// once, and not at each pass.
    pub fn with_forgotten_waiters() -> Self {
        let mut world = Self::empty(1, Mode::Sleepy, 1, MS);
        let start = world.now;
        world.end = start + 400 * S;
        world.longest_idle = Some(600 * MS);
        for at in 0..20 {
            let sleep = if at % 2 == 0 { Sleep::Forgotten } else { Sleep::Never };
            let body = 100;
            let setup = Setup {
                wait: Some(FOREVER),
                ttl: 60 * S,
                body,
                sleep,
                at,
                rounds: 1,
                ..Setup::default()
            };
            let id = world.add(setup);
            if sleep == Sleep::Forgotten {
                world.at(start + 30 * S, Event::Settle(id));
            }
        }
        world
    }

    /// A process whose waiters come later than any offer lasts, beside one whose callers are
    /// prompt. The sleepers have the key for at most a quarter of the time, because their process
    /// rests.
    pub fn with_late_waiters() -> Self {
        let mut world = Self::empty(1, Mode::Sleepy, 2, MS);
        let start = world.now;
        let span = 60 * S;
        world.end = start + 800 * S;
        // A quarter of the time until the prompt callers have done all their rounds.
        world.longest_idle = Some(20 * S);
        for at in 0..8 {
            let (wait, sleep) = (Some(FOREVER), Sleep::Late(2 * S));
            let id =
                world.add(Setup { wait, ttl: 60 * S, sleep, at, rounds: 1, ..Setup::default() });
            world.at(start + span, Event::Settle(id));
        }
        for at in 0..2 {
            let (wait, body) = (Some(FOREVER), 20 * MS);
            let setup = Setup {
                process: 1,
                wait,
                ttl: 60 * S,
                body,
                at,
                rounds: 1_500,
                ..Setup::default()
            };
            world.add(setup);
        }
        world
    }
}
