//! A random schedule: fifty events, then the faults end, and the lock passes on until nobody waits.

use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::model::{Reply, WAITER_LEASE};
use crate::runner;
use crate::sharing::model::{Client, Event, Stage, Step, World};
use crate::sharing::oracles::{Invariant, judge, quiet};
use crate::store::{Look, PROCESSES, Store};

const EVENTS: usize = 50;
/// How many hold the lock beside a caller: nobody, any number, or fewer than this.
const LIMITS: [u32; 6] = [1, 0, 0, 2, 3, 3];
const TTLS: [u64; 3] = [3_000, 9_000, 60_000];
/// The lease of a waiter that is about to lapse, in milliseconds.
pub const LAST: u64 = 2;
/// For how long a permit is kept after its release, in milliseconds.
const KEPT: u64 = 4_000;
/// A schedule that the machine stopped for so long proves nothing.
const STALLED: Duration = Duration::from_millis(2_500);

/// Why a schedule ended early.
pub type Stop = runner::Stop<Invariant>;

pub struct Schedule<'a> {
    pub store: &'a mut Store,
    pub world: World,
    rng: Rng,
    look: Look,
    began: Instant,
    log: Vec<String>,
}

/// Runs the schedule of a seed; returns how many steps it had.
pub fn run(store: &mut Store, seed: u64) -> Result<usize, Stop> {
    let look = store.clear();
    let world = World { clients: Vec::new(), up: [false; PROCESSES] };
    let (rng, began, log) = (Rng::with_seed(seed), Instant::now(), Vec::new());
    let mut schedule = Schedule { store, world, rng, look, began, log };
    for process in 0..PROCESSES {
        schedule.step(Event::Up { process })?;
    }
    for _ in 0..EVENTS {
        schedule.any()?;
    }
    schedule.settle()?;
    Ok(schedule.log.len())
}

impl Schedule<'_> {
    fn any(&mut self) -> Result<(), Stop> {
        let process = self.rng.usize(..PROCESSES);
        let ttl = TTLS[self.rng.usize(..TTLS.len())];
        loop {
            let event = match self.rng.u8(..100) {
                0..24 => Some(Event::Ask { client: self.join(), lease: WAITER_LEASE }),
                24..36 => self.ask(Stage::Waiting, WAITER_LEASE),
                36..48 => Some(Event::Ask { client: self.join(), lease: 0 }),
                48..62 => {
                    let keep = if self.rng.u8(..8) == 0 { KEPT } else { 0 };
                    self.pick(Stage::Holding).map(|client| Event::Release { client, keep })
                }
                62..66 => self.release(Stage::Waiting),
                66..69 => self.release(Stage::Gone),
                69..73 => self.ask(Stage::Holding, 0),
                73..78 => self.pick(Stage::Holding).map(|client| Event::Renew { client, ttl }),
                78..79 => self.pick(Stage::Gone).map(|client| Event::Renew { client, ttl }),
                79..84 => self.pick(Stage::Holding).map(|client| Event::Over { client }),
                84..85 => Some(Event::ForeignSet),
                85..87 => Some(Event::ForeignDelete),
                87..90 => Some(Event::Down { process }),
                90..95 => Some(Event::Up { process }),
                95..98 => return self.lapse(),
                _ => Some(Event::Flush),
            };
            if let Some(event) = event {
                return self.step(event);
            }
        }
    }

    fn join(&mut self) -> usize {
        let number = self.world.clients.len();
        self.world.clients.push(Client {
            // Some have a label in common, like the callers of one function.
            token: format!("c{}/{:032x}", number % 2, number + 1),
            process: self.rng.usize(..PROCESSES),
            limit: LIMITS[self.rng.usize(..LIMITS.len())],
            fenced: self.rng.bool(),
            ttl: TTLS[self.rng.usize(..TTLS.len())],
            stage: Stage::Waiting,
            waits: None,
        });
        number
    }

    fn pick(&mut self, stage: Stage) -> Option<usize> {
        let clients = self.world.clients.iter().enumerate();
        let fit: Vec<_> = clients.filter(|(_, c)| c.stage == stage).map(|(nth, _)| nth).collect();
        self.rng.choice(fit)
    }

    fn ask(&mut self, stage: Stage, lease: u64) -> Option<Event> {
        self.pick(stage).map(|client| Event::Ask { client, lease })
    }

    fn release(&mut self, stage: Stage) -> Option<Event> {
        self.pick(stage).map(|client| Event::Release { client, keep: 0 })
    }

    /// A waiter does not ask until it has left the queue.
    fn lapse(&mut self) -> Result<(), Stop> {
        let Some(Event::Ask { client, .. }) = self.ask(Stage::Waiting, LAST) else { return Ok(()) };
        self.step(Event::Ask { client, lease: LAST })?;
        self.store.pause(Duration::from_millis(LAST + 2));
        self.look = self.store.run(&[]).1;
        Ok(())
    }

    /// Ends the faults. Every waiter asks, and the lock passes on until nobody waits.
    fn settle(&mut self) -> Result<(), Stop> {
        for process in 0..PROCESSES {
            self.step(Event::Up { process })?;
        }
        self.step(Event::ForeignDelete)?;
        for _ in 0..4 * self.world.clients.len() + 8 {
            for client in 0..self.world.clients.len() {
                if self.world.clients[client].stage == Stage::Waiting {
                    self.step(Event::Ask { client, lease: WAITER_LEASE })?;
                }
            }
            let Some(client) = self.pick(Stage::Holding) else { break };
            self.step(Event::Release { client, keep: 0 })?;
        }
        if let Some(client) = self.pick(Stage::Waiting).filter(|_| !self.is_kept()) {
            return Err(self.violated(Invariant::GoesOn, format!("c{client} waits for ever")));
        }
        while let Some(client) = self.pick(Stage::Waiting) {
            self.step(Event::Release { client, keep: 0 })?;
        }
        match quiet(&self.look) {
            Ok(()) => Ok(()),
            Err(why) => Err(self.violated(Invariant::Ends, why)),
        }
    }

    /// Whether a lock is kept after its release.
    fn is_kept(&self) -> bool {
        let is_kept = |token: &str| {
            token.starts_with("kept:") || token.ends_with("/00000000000000000000000000000000")
        };
        self.look.held.as_deref().is_some_and(is_kept)
            || self.look.holders.iter().any(|(token, _)| is_kept(token))
    }

    fn violated(&mut self, invariant: Invariant, why: String) -> Stop {
        if self.began.elapsed() > STALLED {
            return Stop::Stalled;
        }
        Stop::Violated { invariant, why, log: std::mem::take(&mut self.log) }
    }

    fn step(&mut self, event: Event) -> Result<(), Stop> {
        let before = self.look.clone();
        let (reply, after) = self.perform(event)?;
        let step = Step { event, reply, before, after };
        let Look { held, queue, holders, .. } = &step.after;
        self.log.push(format!("{event:?} -> {:?}; {held:?} {holders:?}, {queue:?}", step.reply));
        if let Err((invariant, why)) = judge(&self.world, &step) {
            return Err(self.violated(invariant, why));
        }
        if self.began.elapsed() > STALLED {
            return Err(Stop::Stalled);
        }
        self.apply(&step);
        self.look = step.after;
        Ok(())
    }

    fn apply(&mut self, step: &Step) {
        match step.event {
            Event::Up { process } => self.world.up[process] = true,
            Event::Down { process } => self.world.up[process] = false,
            Event::Ask { client, lease } => {
                let up = self.world.up[self.world.clients[client].process];
                let asking = &mut self.world.clients[client];
                asking.waits = Some(((step.before.at / 1_000 + lease) * 1_000, up));
                if let Reply::Busy(..) = step.reply
                    && lease == 0
                {
                    asking.stage = Stage::Gone;
                }
            }
            Event::Release { client, .. } | Event::Over { client } => {
                self.world.clients[client].stage = Stage::Gone;
            }
            _ => {}
        }
        // Whoever has the lock has received its grant.
        for client in &mut self.world.clients {
            let holds = step.after.live_holders().any(|token| *token == client.token);
            match client.stage {
                Stage::Waiting if holds => client.stage = Stage::Holding,
                Stage::Holding if !holds => client.stage = Stage::Gone,
                _ => {}
            }
        }
        for process in 0..PROCESSES {
            self.store.pushes(process);
        }
    }
}
