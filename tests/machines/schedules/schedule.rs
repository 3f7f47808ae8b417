//! A random schedule: forty events, then the faults end, everybody gets the lock, and all is quiet.

use std::time::{Duration, Instant};

use fastrand::Rng;
use lockmacro_model_tests::replay::Replay;

use crate::model::{CONFIRM_WINDOW, Client, Event, Stage, Step, WAITER_LEASE, World};
use crate::oracles::{Invariant, Judge, quiet};
use crate::replay::replay;
use crate::runner::Stop;
use crate::store::{LOCK, Look, PROCESSES, Store};

const EVENTS: usize = 40;
/// The lease of a waiter that is about to lapse, in milliseconds.
pub const LAST: u64 = 2;
/// The ttls asked for: shorter and longer than the confirm window.
pub const TTLS: [u64; 3] = [3_000, 9_000, 60_000];
/// A schedule that was stopped for so long by the machine proves nothing: leases ran out that
/// should not.
const STALLED: Duration = Duration::from_millis(2_500);
/// For how long a lock is kept after its release, in milliseconds.
pub const KEPT: u64 = 4_000;
/// As many as one call passes, or some more.
const CROWDS: [usize; 2] = [128, 131];

pub struct Schedule<'a> {
    pub store: &'a mut Store,
    judges: &'a [Judge],
    pub world: World,
    replay: Replay,
    pub rng: Rng,
    pub look: Look,
    began: Instant,
    log: Vec<String>,
    /// How many may wait.
    max_queue: usize,
    /// Some pushes are lost.
    faults: bool,
    /// The last fence was once ahead of the clock, so it must not be forgotten.
    ahead: bool,
}

/// Runs the schedule of a seed; tells how many steps it had.
pub fn run(store: &mut Store, judges: &[Judge], seed: u64) -> Result<usize, Stop> {
    let mut schedule = Schedule::start(store, judges, seed, false)?;
    if schedule.rng.u8(..50) == 0 {
        schedule.crowd()?;
    }
    for _ in 0..EVENTS {
        schedule.any()?;
    }
    schedule.settle()?;
    Ok(schedule.steps())
}

impl<'a> Schedule<'a> {
    pub fn start(
        store: &'a mut Store,
        judges: &'a [Judge],
        seed: u64,
        shares: bool,
    ) -> Result<Self, Stop> {
        let (mut rng, look) = (Rng::with_seed(seed), store.clear());
        let max_queue = if !shares && rng.u8(..8) == 0 { 3 } else { 10_000 };
        let mut world = World::default();
        world.shares = shares;
        let (replay, began, log) = (Replay::default(), Instant::now(), Vec::new());
        let (faults, ahead) = (!shares, false);
        let mut schedule =
            Self { store, judges, world, replay, rng, look, began, log, max_queue, faults, ahead };
        for process in 0..PROCESSES {
            schedule.step(Event::Up { process })?;
        }
        Ok(schedule)
    }

    /// How many steps there were.
    pub fn steps(&self) -> usize {
        self.log.len()
    }

    /// One random event.
    fn any(&mut self) -> Result<(), Stop> {
        let answered = self.rng.u8(..8) > 0;
        let process = self.rng.usize(..PROCESSES);
        loop {
            let waits = |c: &Client| c.stage == Stage::Waiting;
            let event = match self.rng.u8(..100) {
                0..20 => {
                    let client = self.join(self.max_queue);
                    Some(self.request(client, answered))
                }
                20..32 => self.pick(waits).map(|client| self.request(client, answered)),
                32..38 => {
                    let client = self.join(0);
                    let plain = !self.world.clients[client].fenced && !self.world.full;
                    match plain && self.rng.bool() {
                        true => Some(Event::Set { client, answered }),
                        false => Some(self.request(client, answered)),
                    }
                }
                38..50 => {
                    let keep = if self.rng.u8(..8) == 0 { KEPT } else { 0 };
                    let holder = self.pick(|c| c.stage == Stage::Holding);
                    holder.map(|client| Event::Release { client, keep })
                }
                50..54 => self.pick(waits).map(|client| Event::Release { client, keep: 0 }),
                54..56 => {
                    let unanswered = self.pick(|c| c.stage == Stage::Unanswered);
                    unanswered.map(|client| Event::Release { client, keep: 0 })
                }
                56..58 => {
                    let gone = self.pick(|c| c.stage == Stage::Gone);
                    gone.map(|client| Event::Release { client, keep: 0 })
                }
                58..62 => {
                    // The request again, as when its answer did not come.
                    let holder = self.pick(|c| c.stage == Stage::Holding && !c.lost);
                    holder.map(|client| self.request(client, answered))
                }
                62..64 => {
                    self.pick(|c| c.stage == Stage::Unanswered).map(|c| self.request(c, answered))
                }
                64..67 => {
                    self.pick(|c| c.stage != Stage::Gone).map(|client| Event::Crash { client })
                }
                67..69 => Some(Event::CrashProcess { process }),
                69..73 => return self.lapse(),
                73..79 => Some(Event::Expire),
                79..81 => (!self.world.full).then_some(Event::ForeignSet),
                81..83 => Some(Event::ForeignDelete),
                83..86 => Some(Event::Down { process }),
                86..90 => Some(Event::Up { process }),
                90..91 => Some(Event::Flush),
                91..95 => {
                    let ttl = TTLS[self.rng.usize(..TTLS.len())];
                    let renews = |c: &Client| c.stage != Stage::Waiting;
                    self.pick(renews).map(|client| Event::Renew { client, ttl })
                }
                95..98 => self.fence_fault(),
                98..99 => match self.rng.u8(..4) {
                    0 => Some(Event::Silence),
                    _ => Some(Event::Publish(self.world.muted)),
                },
                _ => Some(Event::Memory(self.world.full)),
            };
            if let Some(event) = event {
                return self.step(event);
            }
        }
    }

    pub fn join(&mut self, max_queue: usize) -> usize {
        let process = self.rng.usize(..PROCESSES);
        let ttl = TTLS[self.rng.usize(..TTLS.len())];
        let fenced = self.rng.bool();
        self.world.join(process, fenced, ttl, max_queue)
    }

    /// Some client that still acts.
    pub fn pick(&mut self, which: impl Fn(&Client) -> bool) -> Option<usize> {
        let clients = self.world.clients.iter().enumerate();
        let fit: Vec<usize> =
            clients.filter(|(_, c)| !c.crashed && which(c)).map(|(number, _)| number).collect();
        self.rng.choice(fit)
    }

    pub fn request(&self, client: usize, answered: bool) -> Event {
        Event::Ask {
            client,
            max_queue: self.world.clients[client].max_queue,
            lease: WAITER_LEASE,
            answered,
        }
    }

    pub fn ask(&mut self, client: usize) -> Result<(), Stop> {
        self.step(self.request(client, true))
    }

    /// A waiter does not ask until its lease in the queue has ended.
    fn lapse(&mut self) -> Result<(), Stop> {
        let Some(client) = self.pick(|c| c.last_request.is_some()) else { return Ok(()) };
        let max_queue = self.world.clients[client].max_queue;
        self.step(Event::Ask { client, max_queue, lease: LAST, answered: true })?;
        while let Some(last_request) = self.world.clients[client].last_request
            && last_request.until.1 >= self.look.at
        {
            self.store.pause(Duration::from_micros(last_request.until.1 - self.look.at + 200));
            self.look = self.store.run(&[]).1;
        }
        if self.rng.bool() { self.step(Event::Crash { client }) } else { Ok(()) }
    }

    /// The last fence is lost, or was given by a clock that was ahead. Not while a fenced grant is
    /// there, which would be granted another fence then.
    fn fence_fault(&mut self) -> Option<Event> {
        let holder = self.world.holder(&self.look);
        if holder.is_some_and(|holder| self.world.clients[holder].fenced) {
            return None;
        }
        if !self.ahead && self.rng.u8(..4) > 0 {
            return Some(Event::FenceForgotten);
        }
        self.ahead = true;
        let ahead = self.look.at.max(self.world.last_fence) + 60_000_000;
        (!self.world.full).then_some(Event::FenceAhead(ahead))
    }

    /// At least as many waiters of one process as one call removes; then the process dies.
    fn crowd(&mut self) -> Result<(), Stop> {
        let first = self.world.join(1, false, TTLS[1], self.max_queue);
        self.ask(first)?;
        for _ in 0..CROWDS[self.rng.usize(..CROWDS.len())] {
            let client = self.world.join(0, false, TTLS[0], self.max_queue);
            self.ask(client)?;
        }
        self.step(Event::CrashProcess { process: 0 })?;
        let last = self.world.join(1, false, TTLS[1], self.max_queue);
        self.ask(last)?;
        if self.rng.bool() {
            return self.step(Event::Release { client: first, keep: 0 });
        }
        self.step(Event::Expire)?;
        let other = self.join(0);
        self.ask(other)
    }

    /// Ends the faults and lets every waiter ask. Then the lock passes from one to the next, in a
    /// bounded number of steps, until nobody waits and nothing is left.
    fn settle(&mut self) -> Result<(), Stop> {
        self.faults = false;
        self.step(Event::Memory(true))?;
        self.step(Event::Publish(true))?;
        for process in 0..PROCESSES {
            self.step(Event::Up { process })?;
        }
        while let Some(client) = self.pick(|c| c.stage == Stage::Unanswered) {
            self.step(Event::Release { client, keep: 0 })?;
        }
        while let Some(client) = self.pick(|c| c.stage == Stage::Holding && c.lost) {
            self.step(Event::Release { client, keep: 0 })?;
        }
        for client in 0..self.world.clients.len() {
            let Client { stage, crashed, .. } = self.world.clients[client];
            if stage == Stage::Waiting && !crashed {
                self.ask(client)?;
            }
        }
        let rounds = 4 * self.world.clients.len() + 8;
        for _ in 0..rounds {
            let waits = self.pick(|c| c.stage == Stage::Waiting);
            match self.world.holder(&self.look) {
                Some(client) if self.acts(client) => {
                    if self.world.clients[client].stage == Stage::Waiting {
                        self.ask(client)?;
                    }
                    self.step(Event::Release { client, keep: 0 })?;
                }
                _ if self.look.held.is_some() => {
                    let left = self.look.expiry(LOCK) - (self.look.at / 1_000) as i64;
                    let longest = TTLS.into_iter().max().unwrap_or(CONFIRM_WINDOW);
                    if left > longest as i64 + 1 {
                        self.violated(Invariant::GoesOn, format!("held for {left} ms"))?;
                    }
                    self.step(Event::Expire)?;
                }
                // The lock is free: the first live waiter asks, or a new client.
                _ => match self.world.queue.iter().copied().find(|c| self.acts(*c)).or(waits) {
                    Some(client) => self.ask(client)?,
                    None if self.look.queue.is_empty() => break,
                    None => {
                        let client = self.join(0);
                        self.ask(client)?;
                    }
                },
            }
        }
        if let Some(client) = self.pick(|c| c.stage == Stage::Waiting) {
            self.violated(Invariant::GoesOn, format!("c{client} waits for ever"))?;
        }
        if let Err(why) = quiet(&self.look) {
            self.violated(Invariant::Ends, why)?;
        }
        let stray: Vec<_> = (0..PROCESSES).flat_map(|p| self.store.pushes(p)).collect();
        if !stray.is_empty() {
            self.violated(Invariant::GoesOn, format!("pushed to nobody: {stray:?}"))?;
        }
        Ok(())
    }

    fn acts(&self, client: usize) -> bool {
        let client = &self.world.clients[client];
        !client.crashed && client.stage != Stage::Gone
    }

    pub fn violated(&mut self, invariant: Invariant, why: String) -> Result<(), Stop> {
        if !self.judges.iter().any(|(of, _)| *of == invariant) {
            return Ok(());
        }
        if self.began.elapsed() > STALLED {
            return Err(Stop::Stalled);
        }
        Err(Stop::Violated { invariant, why, log: std::mem::take(&mut self.log) })
    }

    /// Makes an event happen, lets the oracles judge it, and records it.
    pub fn step(&mut self, event: Event) -> Result<(), Stop> {
        let before = self.look.clone();
        let (reply, after) = self.perform(&event)?;
        let (pushes, allowed) = (Vec::new(), Ok(()));
        let mut step = Step { event, reply, pushes, before, after, allowed };
        if let Some(handed) = self.world.handed_off(&step).or(self.world.asked_to_poll(&step)) {
            step.pushes = self.store.pushes(self.world.clients[handed].process);
        }
        if self.began.elapsed() > STALLED {
            return Err(Stop::Stalled);
        }
        if !self.world.shares {
            step.allowed = replay(&mut self.replay, &self.world, &step);
        }
        self.log.push(line(&step));
        for (invariant, judge) in self.judges {
            if let Err(why) = judge(&self.world, &step) {
                let log = std::mem::take(&mut self.log);
                return Err(Stop::Violated { invariant: *invariant, why, log });
            }
        }
        let lost = self.faults && self.rng.u8(..6) == 0;
        self.world.apply(&step, lost);
        self.look = step.after;
        Ok(())
    }
}

/// A step in a line of the log.
fn line(Step { event, reply, pushes, after, .. }: &Step) -> String {
    let name = |token: &String| token.split('/').next().unwrap_or_default().to_owned();
    let queue: Vec<String> = after.queue.iter().map(|(token, _)| name(token)).collect();
    let held = after.held.as_ref().map(name).unwrap_or_default();
    let (holders, pushed) = (&after.holders, pushes.first().map(|push| push.number));
    format!(
        "{event:?} -> {reply:?}; held [{held}] {holders:?}, in the queue {queue:?}, pushed to \
         {pushed:?}"
    )
}
