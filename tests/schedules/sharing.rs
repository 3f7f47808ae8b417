//! Random schedules of callers that share a lock, and of exclusive ones among them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::model::{CONFIRM_WINDOW, FENCE_TTL, Reply, WAITER_LEASE};
use crate::number;
use crate::perform::{answer, one, words};
use crate::real::Real;
use crate::scripts::Scripts;
use crate::sharing_oracles::{Oracle, judge, quiet};
use crate::simulated::Simulated;
use crate::store::{Connected, HOLDERS, LOCK, Look, PROCESSES, QUEUE, RECORDS, Store, Which};

const EVENTS: usize = 50;
/// How many hold the lock beside a caller: nobody, any number, or fewer than this.
const LIMITS: [u32; 6] = [1, 0, 0, 2, 3, 3];
const TTLS: [u64; 3] = [3_000, 9_000, 60_000];
/// The lease of a waiter that is about to lapse, in milliseconds.
const LAST: u64 = 2;
/// For how long a permit is kept after its release, in milliseconds.
const KEPT: u64 = 4_000;
/// A schedule that the machine stopped for so long proves nothing.
const STALLED: Duration = Duration::from_millis(2_500);

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

/// What a judge sees.
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

/// Why a schedule ended early.
#[derive(Debug)]
pub enum Stop {
    Violated(Oracle, String),
    Stalled,
}

struct Schedule<'a> {
    store: &'a mut Store,
    world: World,
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
            token: format!("c{number}/{:032x}", number + 1),
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
            return Err(self.violated(Oracle::GoesOn, format!("c{client} waits for ever")));
        }
        while let Some(client) = self.pick(Stage::Waiting) {
            self.step(Event::Release { client, keep: 0 })?;
        }
        match quiet(&self.look) {
            Ok(()) => Ok(()),
            Err(why) => Err(self.violated(Oracle::Ends, why)),
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

    fn violated(&self, oracle: Oracle, why: String) -> Stop {
        if self.began.elapsed() > STALLED {
            return Stop::Stalled;
        }
        Stop::Violated(oracle, format!("{why}\n  {}", self.log.join("\n  ")))
    }

    fn step(&mut self, event: Event) -> Result<(), Stop> {
        let before = self.look.clone();
        let (reply, after) = self.perform(event);
        let step = Step { event, reply, before, after };
        let Look { held, queue, holders, .. } = &step.after;
        self.log.push(format!("{event:?} -> {:?}; {held:?} {holders:?}, {queue:?}", step.reply));
        if let Err((oracle, why)) = judge(&self.world, &step) {
            return Err(self.violated(oracle, why));
        }
        if self.began.elapsed() > STALLED {
            return Err(Stop::Stalled);
        }
        self.apply(&step);
        self.look = step.after;
        Ok(())
    }

    fn perform(&mut self, event: Event) -> (Reply, Look) {
        let token = |client: usize| self.world.clients[client].token.clone();
        let own = |(replies, look): (Vec<redis::Value>, Look)| (Reply::Own(one(&replies[0])), look);
        let commands = match event {
            Event::Ask { client, lease } => return self.perform_ask(client, lease),
            Event::Release { client, keep } => {
                let (token, keep) = (token(client), keep.to_string());
                let args = [&*token, &keep, &CONFIRM_WINDOW.to_string(), &FENCE_TTL.to_string()];
                return own(self.store.call(Which::Release, &args, &[]));
            }
            Event::Renew { client, ttl } => {
                let args = [&*token(client), &ttl.to_string()];
                return own(self.store.call(Which::RenewShared, &args, &[]));
            }
            Event::Over { client } => {
                let over = "if redis.call('GET', KEYS[1]) == ARGV[1] then
                        return redis.call('DEL', KEYS[1])
                    end
                    local time = redis.call('TIME')
                    local now = time[1] * 1000 + math.floor(time[2] / 1000)
                    redis.call('ZADD', KEYS[2], 'XX', string.format('%.0f', now - 1), ARGV[1])
                    local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
                    local held = redis.call('GET', KEYS[1]) or ''
                    if not string.find(held, '/shared$') then return 0 end
                    redis.call('PEXPIREAT', KEYS[2], last)
                    return redis.call('PEXPIREAT', KEYS[1], last)";
                words(&["EVAL", over, "2", LOCK, HOLDERS, &token(client)])
            }
            Event::ForeignSet => words(&["SET", LOCK, "a stranger", "NX", "PX", "20000"]),
            Event::ForeignDelete => words(&["DEL", LOCK]),
            Event::Up { process } => {
                self.store.subscribe(process, &channel(process));
                return (Reply::None, self.store.run(&[]).1);
            }
            Event::Down { process } => {
                self.store.unsubscribe(process);
                return (Reply::None, self.store.run(&[]).1);
            }
            Event::Flush => words(&["SCRIPT", "FLUSH"]),
        };
        (Reply::None, self.store.run(&[commands]).1)
    }

    fn perform_ask(&mut self, client: usize, lease: u64) -> (Reply, Look) {
        let Client { token, process, limit, fenced, ttl, .. } = &self.world.clients[client];
        let (ttl, limit, fenced) = (ttl.to_string(), limit.to_string(), u8::from(*fenced));
        let probe = u8::from(self.world.up[*process]);
        let record = format!("{ttl}|{fenced}|{probe}|{client}|{}|1|{limit}", channel(*process));
        let (window, retention) = (CONFIRM_WINDOW.to_string(), FENCE_TTL.to_string());
        let (fenced, lease_ms) = (fenced.to_string(), lease.to_string());
        let max_queue = if lease > 0 { "10000" } else { "0" };
        let args =
            [token, &*ttl, &fenced, &window, &retention, max_queue, &limit, &lease_ms, &record];
        // As if only the lease of this waiter were about to end, and not that of all.
        let more: Vec<_> = match lease {
            LAST => [QUEUE, RECORDS].map(|key| words(&["PEXPIRE", key, "15000"])).into(),
            _ => Vec::new(),
        };
        let (replies, look) = self.store.call(Which::Acquire, &args, &more);
        (answer(&replies[0]), look)
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
            let holds = holders(&step.after).any(|token| *token == client.token);
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

fn channel(process: usize) -> String {
    format!("lm1:{process}")
}

/// The tokens that hold the lock, those that keep it after their release included.
pub fn holders(look: &Look) -> impl Iterator<Item = &String> {
    let is_shared = look.held.as_deref().is_some_and(|held| held.ends_with("/shared"));
    let live = |(token, ends): &'_ (String, f64)| (*ends > (look.at / 1_000) as f64, token.len());
    let shared = look.holders.iter().filter(move |holder| is_shared && live(holder).0);
    shared.map(|(token, _)| token).chain(look.held.iter().filter(move |_| !is_shared))
}

#[test]
fn every_schedule_of_sharing_callers_keeps_every_invariant() {
    keeps_every_invariant(Real::start, 1_000);
}

#[test]
fn a_simulated_server_answers_sharing_callers_as_a_real_one_does() {
    keeps_every_invariant(Simulated::beside_a_real_one, 500);
}

fn keeps_every_invariant<S: Connected + 'static>(start: fn() -> S, schedules: u64) {
    let schedules = number("LOCKMACRO_SCHEDULES").unwrap_or(schedules);
    let first = number("LOCKMACRO_SEED").unwrap_or_else(|| fastrand::u64(..1 << 48));
    let (next, stalled) = (AtomicU64::new(0), AtomicU64::new(0));
    let worker = || {
        let mut store = Store::start(start(), Scripts::real());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= schedules {
                return None;
            }
            match run(&mut store, first + number) {
                Ok(_) => {}
                Err(Stop::Stalled) => drop(stalled.fetch_add(1, Ordering::Relaxed)),
                Err(Stop::Violated(oracle, why)) => {
                    next.store(schedules, Ordering::Relaxed);
                    let seed = first + number;
                    return Some(format!(
                        "{oracle:?}: {why}\nagain with LOCKMACRO_SEED={seed} LOCKMACRO_SCHEDULES=1"
                    ));
                }
            }
        }
    };
    let violations: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2.min(schedules)).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().filter_map(|t| t.join().expect("schedules that run")).collect()
    });
    assert!(violations.is_empty(), "{}", violations.join("\n\n"));
    let stalled = stalled.into_inner();
    assert!(stalled <= (schedules / 10).max(1), "{stalled} of {schedules} schedules stalled");
}
