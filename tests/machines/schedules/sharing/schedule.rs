//! A random schedule: fifty events, then the faults end, and the lock passes on until nobody waits.

use std::time::Duration;

use crate::model::{Event, Stage, WAITER_LEASE};
use crate::oracles::{Invariant, Judge};
use crate::runner::Stop;
use crate::schedule::{KEPT, LAST, Schedule, TTLS};
use crate::sharing::oracles::quiet;
use crate::store::{PROCESSES, Store};

const EVENTS: usize = 50;
/// How many hold the lock beside a caller: nobody, any number, or fewer than this.
const LIMITS: [u32; 6] = [1, 0, 0, 2, 3, 3];

/// Runs the schedule of a seed; tells how many steps it had.
pub fn run(store: &mut Store, judges: &[Judge], seed: u64) -> Result<usize, Stop> {
    let mut schedule = Schedule::start(store, judges, seed, true)?;
    for _ in 0..EVENTS {
        schedule.any_of_sharing()?;
    }
    schedule.settle_sharing()?;
    Ok(schedule.steps())
}

impl Schedule<'_> {
    fn any_of_sharing(&mut self) -> Result<(), Stop> {
        let process = self.rng.usize(..PROCESSES);
        let ttl = TTLS[self.rng.usize(..TTLS.len())];
        loop {
            let event = match self.rng.u8(..100) {
                0..24 => Some(self.joins(10_000)),
                24..36 => self.asks(Stage::Waiting, WAITER_LEASE),
                36..48 => Some(self.joins(0)),
                48..62 => {
                    let keep = if self.rng.u8(..8) == 0 { KEPT } else { 0 };
                    self.of(Stage::Holding).map(|client| Event::Release { client, keep })
                }
                62..66 => self.releases(Stage::Waiting),
                66..69 => self.releases(Stage::Gone),
                69..73 => self.asks(Stage::Holding, 0),
                73..78 => self.of(Stage::Holding).map(|client| Event::Renew { client, ttl }),
                78..79 => self.of(Stage::Gone).map(|client| Event::Renew { client, ttl }),
                79..84 => self.of(Stage::Holding).map(|client| Event::Over { client }),
                84..85 => Some(Event::ForeignSet),
                85..87 => Some(Event::Delete),
                87..90 => Some(Event::Down { process }),
                90..95 => Some(Event::Up { process }),
                95..98 => return self.waiter_lapses(),
                _ => Some(Event::Flush),
            };
            if let Some(event) = event {
                return self.step(event);
            }
        }
    }

    fn joins(&mut self, max_queue: usize) -> Event {
        let client = self.join(max_queue);
        self.world.clients[client].limit = LIMITS[self.rng.usize(..LIMITS.len())];
        self.request(client, true)
    }

    fn of(&mut self, stage: Stage) -> Option<usize> {
        self.pick(|client| client.stage == stage)
    }

    /// Asks, and waits in the queue for a lease of this many milliseconds; 0 does not wait.
    fn asks(&mut self, stage: Stage, lease: u64) -> Option<Event> {
        let (max_queue, answered) = (if lease > 0 { 10_000 } else { 0 }, true);
        self.of(stage).map(|client| Event::Ask { client, max_queue, lease, answered })
    }

    fn releases(&mut self, stage: Stage) -> Option<Event> {
        self.of(stage).map(|client| Event::Release { client, keep: 0 })
    }

    /// A waiter does not ask until it has left the queue.
    fn waiter_lapses(&mut self) -> Result<(), Stop> {
        let Some(asks) = self.asks(Stage::Waiting, LAST) else { return Ok(()) };
        self.step(asks)?;
        self.store.pause(Duration::from_millis(LAST + 2));
        self.look = self.store.run(&[]).1;
        Ok(())
    }

    /// Ends the faults. Every waiter asks, and the lock passes on until nobody waits.
    fn settle_sharing(&mut self) -> Result<(), Stop> {
        for process in 0..PROCESSES {
            self.step(Event::Up { process })?;
        }
        self.step(Event::Delete)?;
        for _ in 0..4 * self.world.clients.len() + 8 {
            for client in 0..self.world.clients.len() {
                if self.world.clients[client].stage == Stage::Waiting {
                    self.ask(client)?;
                }
            }
            let Some(release) = self.releases(Stage::Holding) else { break };
            self.step(release)?;
        }
        if let Some(client) = self.of(Stage::Waiting).filter(|_| !self.is_kept()) {
            self.violated(Invariant::GoesOn, format!("c{client} waits for ever"))?;
        }
        while let Some(release) = self.releases(Stage::Waiting) {
            self.step(release)?;
        }
        quiet(&self.look).or_else(|why| self.violated(Invariant::Ends, why))
    }

    /// Whether a lock is kept after its release.
    fn is_kept(&self) -> bool {
        let is_kept = |token: &String| token.starts_with("kept:") || self.world.is_kept(token);
        self.look.held.iter().any(is_kept)
            || self.look.holders.iter().any(|(token, _)| is_kept(token))
    }
}
