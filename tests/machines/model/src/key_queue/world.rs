//! One schedule: processes with a key queue each, their callers, a network and one server.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use fastrand::Rng;

use super::engine::{KeyQueue, Tenure, Ticket};
use super::server::{Command, FOREIGN, MS, Push, Reply, S, Server, Token, Wish};
use super::sys::time::Moment;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    #[default]
    /// Nothing is lost or late, every caller is polled at once.
    Calm,
    /// Some callers are polled late, or not at all.
    Sleepy,
    /// Messages are lost, late and doubled; processes freeze and die; the server is replaced.
    Faulty,
}

#[derive(Debug, Clone)]
pub(crate) enum Event {
    Arrive(usize),
    Poll(usize),
    Drop(usize),
    /// From now on a caller that slept is polled in time, or it is dropped.
    Settle(usize),
    BodyEnds(usize, u32),
    Deliver(usize, u64, Command),
    /// A second copy of a command, unless it was answered.
    DeliverAgain(usize, u64, Command),
    Answer(usize, u64, Reply),
    Timeout(usize, u64),
    Pushed(Push),
    /// The queue's request is sent again.
    Tick(usize, Token),
    Watch(usize),
    Renew(usize, u32),
    LeaseEnds(usize, u32),
    ReleaseAgain(usize, Token),
    Freeze(usize, u64),
    Kill(usize),
    Shutdown(usize),
    /// The store refuses requests for fences.
    NoFences(usize),
    ServerReplaced,
    /// A process learns that the server was replaced.
    Notice(usize, u32),
    Pause(u64),
    ForeignSet(u64),
    ForeignEnds,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Sleep {
    #[default]
    Never,
    /// Polled this long after it is woken.
    Late(u64),
    /// Polled once, and then only when the schedule ends.
    Forgotten,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Out,
    Asks,
    Waits,
    Undecided,
    Body,
    Lost,
    Done,
}

/// A lock that a caller holds.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    pub(crate) ticket: Ticket,
    pub(crate) tenure: Tenure<Token>,
    /// The end of the caller's own ttl.
    pub(crate) own_end: Moment,
    /// Number of renewals without an answer.
    pub(crate) in_flight: u32,
    /// When a renewal was last found without an answer.
    pub(crate) doubt: Option<Moment>,
    pub(crate) ended: bool,
    pub(crate) fence: Option<u64>,
    /// The server that granted it was replaced.
    pub(crate) tainted: bool,
}

impl Guard {
    pub(crate) fn ends(&self) -> Moment {
        self.tenure.ends.min(self.own_end)
    }
}

/// What a caller does, as the schedule has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setup {
    pub(crate) process: usize,
    pub(crate) wait: Option<u64>,
    pub(crate) ttl: u64,
    pub(crate) fenced: bool,
    pub(crate) renews: bool,
    /// The key has to stay for a while after the body.
    pub(crate) min_hold: bool,
    pub(crate) body: u64,
    pub(crate) sleep: Sleep,
    /// How often it calls.
    pub(crate) rounds: u32,
    pub(crate) at: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Caller {
    pub(crate) setup: Setup,
    pub(crate) has_slept: bool,
    pub(crate) rounds: u32,
    /// The number of the call. Events of earlier ones mean nothing.
    pub(crate) call: u32,
    pub(crate) phase: Phase,
    /// The caller arrives once more in this call.
    pub(crate) is_again: bool,
    /// Its own request was sent while a release of its process was without an answer.
    pub(crate) is_behind: bool,
    /// The releases of its process that had no answer when its own request was sent.
    pub(crate) releasing: HashSet<Token>,
    /// How often it has asked by itself.
    pub(crate) asked: u32,
    pub(crate) held: Option<Guard>,
    pub(crate) ticket: Ticket,
    pub(crate) token: Token,
    pub(crate) answer: Option<Result<(Reply, Moment), ()>>,
    pub(crate) tries: u32,
    /// Its last request. Late answers to earlier ones do not count.
    pub(crate) last_request: u64,
    pub(crate) deadline: u64,
    pub(crate) poll_at: Option<u64>,
}

/// For whom a request was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sender {
    Caller(usize, u32),
    Queue(Token),
    Cleanup(Token),
    Guard(usize, u32),
}

/// The request of a queue.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) token: Token,
    /// When a request was sent, and the server's clock in its answer.
    pub(crate) sample: Option<(Moment, u64)>,
    /// The last request. Late answers to earlier ones do not count.
    pub(crate) last: u64,
}

#[derive(Default)]
pub(crate) struct Process {
    pub(crate) rate: f64,
    pub(crate) frozen: u64,
    pub(crate) thawed: u64,
    pub(crate) dead: bool,
    pub(crate) closed: bool,
    /// Callers up to this one that need a fence were sent away.
    pub(crate) sent_away: Ticket,
    pub(crate) queue: KeyQueue<Wish, usize>,
    pub(crate) asked: Option<Asked>,
    pub(crate) requests: HashMap<u64, (Moment, Command, Sender)>,
    /// Tokens of tenures, and tokens whose release was sent.
    pub(crate) live: HashSet<Token>,
    pub(crate) released: HashSet<Token>,
    /// Tokens whose release has no answer.
    pub(crate) releasing: HashSet<Token>,
    /// Those of them that the queue has forgotten, as it has asked for a waiter meanwhile, and
    /// tokens that a late request has got after their release. A further release frees those.
    pub(crate) overtaken: HashSet<Token>,
    /// The longest ttl for which a token was asked.
    pub(crate) longest: HashMap<Token, u64>,
    /// Tokens by which the process has learnt that another holder has the lock.
    pub(crate) known: HashSet<Token>,
    /// When the process has last learnt that the server was replaced, and how often it was by then.
    pub(crate) changed: Moment,
    pub(crate) epoch: u32,
    pub(crate) watched: Option<u64>,
    /// More waiters were offered the lock, as the others had slept.
    pub(crate) widened: bool,
    pub(crate) widened_at: u64,
    /// When the last command of each connection arrives.
    pub(crate) arrives: [u64; 2],
}

/// What a schedule has come to.
#[derive(Debug, Default, Clone)]
pub struct Report {
    /// The promises that were broken.
    pub violations: Vec<String>,
    /// All that happened, if the world was traced.
    pub log: Vec<String>,
}

/// A schedule that runs.
#[derive(Default)]
pub struct World {
    pub(crate) rng: Rng,
    pub(crate) mode: Mode,
    pub(crate) now: u64,
    pub(crate) trip: u64,
    /// The store has no queue, as several nodes have none: a process asks again at random.
    pub(crate) polls: bool,
    pub(crate) events: BTreeMap<(u64, u64), Event>,
    pub(crate) serial: u64,
    pub(crate) server: Server,
    /// The server answers nobody until then.
    pub(crate) paused: u64,
    /// How often the server was replaced, and when it last was.
    pub(crate) epoch: u32,
    pub(crate) replaced: u64,
    /// Tokens whose lock went with a server that was replaced.
    pub(crate) lost: HashSet<Token>,
    /// Tokens that a client has sent again without an answer: the first copy may still arrive.
    pub(crate) resent: HashSet<Token>,
    pub(crate) trouble_ends: u64,
    pub(crate) end: u64,
    pub(crate) processes: Vec<Process>,
    pub(crate) callers: Vec<Caller>,
    pub(crate) last_fence: u64,
    pub(crate) idle_since: Option<u64>,
    /// How long the lock was idle in all, and how long it may be.
    pub(crate) idle: u64,
    pub(crate) longest_idle: Option<u64>,
    pub(crate) is_traced: bool,
    pub(crate) report: Report,
}

impl Process {
    pub(crate) fn has_sent_away(&self, caller: &Caller) -> bool {
        caller.setup.fenced && caller.ticket <= self.sent_away
    }
}

pub(crate) fn us(time: u64) -> Duration {
    Duration::from_micros(time)
}

/// The end of a lease of `ttl` that counts from `sent`.
pub(crate) fn lease_end(sent: Moment, ttl: u64) -> Moment {
    sent.after(us(ttl.saturating_sub(ttl / 100 + 2 * MS)))
}

impl World {
    pub(crate) fn empty(seed: u64, mode: Mode, processes: usize, trip: u64) -> Self {
        let start = 1_000_000 * S;
        let mut rng = Rng::with_seed(seed);
        let mut process = |nth: usize| Process {
            rate: match mode {
                Mode::Faulty => 1.0 + (rng.f64() - 0.5) / 100.0,
                _ => 1.0 + nth as f64 / 1e4,
            },
            ..Process::default()
        };
        let processes: Vec<_> = (0..processes).map(&mut process).collect();
        Self {
            rng,
            mode,
            now: start,
            trip,
            server: Server::new(start, processes.len()),
            trouble_ends: start,
            end: start + 600 * S,
            processes,
            ..Self::default()
        }
    }

    pub(crate) fn add(&mut self, setup: Setup) -> usize {
        let id = self.callers.len();
        self.at(self.now + setup.at, Event::Arrive(id));
        let (has_slept, rounds) = (setup.sleep != Sleep::Never, setup.rounds);
        self.callers.push(Caller { has_slept, rounds, setup, ..Caller::default() });
        id
    }

    pub(crate) fn at(&mut self, time: u64, event: Event) {
        self.serial += 1;
        self.events.insert((time.max(self.now), self.serial), event);
    }

    pub(crate) fn trace(&mut self, line: impl FnOnce() -> String) {
        if self.is_traced {
            self.report.log.push(format!("{} {}", self.now, line()));
        }
    }

    /// The time by the clock of a process.
    pub(crate) fn local(&self, process: usize) -> Moment {
        Moment::at(us((self.now as f64 * self.processes[process].rate) as u64))
    }

    /// The real time of a moment of the process's clock.
    pub(crate) fn real(&self, process: usize, moment: Moment) -> u64 {
        // Not before a moment between two microseconds.
        (moment.micros() as f64 / self.processes[process].rate) as u64 + 3
    }

    pub(crate) fn has_trouble(&self) -> bool {
        self.mode == Mode::Faulty && self.now < self.trouble_ends
    }

    /// True in so many of a thousand cases.
    pub(crate) fn chance(&mut self, of_1000: u64) -> bool {
        self.rng.u64(0..1_000) < of_1000
    }

    /// The longest time for an answer, after which a request is given up.
    pub(crate) fn answer_time(&self) -> u64 {
        (20 * self.trip).max(150 * MS)
    }

    pub(crate) fn delay(&mut self) -> u64 {
        let half = self.trip / 2;
        let delay = self.rng.u64(half * 8 / 10..=half * 12 / 10 + 1);
        match self.has_trouble() {
            true if self.chance(30) => delay + self.rng.u64(MS..400 * MS),
            true if self.chance(15) => delay + self.rng.u64(100 * MS..5 * S),
            _ => delay,
        }
    }

    /// Records all that happens.
    pub fn traced(mut self) -> Self {
        self.is_traced = true;
        self
    }

    /// Runs the schedule to its end, or until a promise is broken.
    pub fn run(mut self) -> Report {
        let mut happened = 0;
        while let Some(((time, _), event)) = self.events.pop_first() {
            if time > self.end {
                break;
            }
            (self.now, self.server.now) = (time, time);
            happened += 1;
            if happened > 400_000 {
                self.bad("spins: the schedule never ends".to_owned());
            }
            self.step(event);
            while let Some(push) = self.server.pushes.pop() {
                if !(self.has_trouble() && self.chance(25)) {
                    let delay = self.delay();
                    self.at(time + delay, Event::Pushed(push));
                }
            }
            self.note_idle();
            self.check_places();
            if !self.report.violations.is_empty() {
                return self.report;
            }
        }
        self.check_end();
        self.report
    }

    fn process_of(&self, event: &Event) -> Option<usize> {
        use Event::*;
        match event {
            Arrive(id) | Poll(id) | Drop(id) | Settle(id) => Some(self.callers[*id].setup.process),
            BodyEnds(id, _) | Renew(id, _) | LeaseEnds(id, _) => {
                Some(self.callers[*id].setup.process)
            }
            Answer(nth, ..) | Timeout(nth, _) | Tick(nth, _) | Watch(nth) => Some(*nth),
            ReleaseAgain(nth, _) | Shutdown(nth) | NoFences(nth) | Notice(nth, _) => Some(*nth),
            Pushed(push) => Some(push.token.process),
            _ => None,
        }
    }

    fn step(&mut self, event: Event) {
        if let Some(nth) = self.process_of(&event) {
            let process = &self.processes[nth];
            if process.dead {
                return;
            }
            if process.frozen > self.now {
                let time = process.frozen + self.rng.u64(0..50);
                return self.at(time, event);
            }
        }
        self.trace(|| format!("{event:?}"));
        match event {
            Event::Arrive(id) => self.begin(id),
            Event::Poll(id) => self.polled(id),
            Event::Drop(id) => self.dropped(id),
            Event::Settle(id) => {
                self.callers[id].setup.sleep = Sleep::Never;
                self.callers[id].rounds = 0;
                if self.chance(500) { self.dropped(id) } else { self.polled(id) }
            }
            Event::BodyEnds(id, call) => self.body_ends(id, call),
            Event::Deliver(nth, id, command) => self.deliver(nth, id, command),
            Event::DeliverAgain(nth, id, command) => {
                if self.processes[nth].requests.contains_key(&id) {
                    self.deliver(nth, id, command);
                }
            }
            Event::Answer(nth, id, reply) => self.answered(nth, id, reply),
            Event::Timeout(nth, id) => self.timed_out(nth, id),
            Event::Pushed(push) => self.pushed(push),
            Event::Tick(nth, token) => {
                if self.is_asked(nth, token) {
                    self.ask(nth);
                }
            }
            Event::Watch(nth) => self.watched(nth),
            Event::Renew(id, call) => self.renew(id, call),
            Event::LeaseEnds(id, call) => self.lease_ends(id, call),
            Event::ReleaseAgain(nth, token) => {
                self.send(nth, Command::Release { token }, Sender::Cleanup(token));
            }
            Event::Freeze(nth, long) => {
                let process = &mut self.processes[nth];
                process.frozen = process.frozen.max(self.now + long);
                process.thawed = process.frozen;
            }
            Event::Kill(nth) => self.kill(nth),
            Event::Shutdown(nth) => self.shut_down(nth),
            Event::NoFences(nth) => self.send_away(nth),
            Event::ServerReplaced => self.replace_server(),
            Event::Notice(nth, epoch) => self.notice(nth, epoch),
            Event::Pause(long) => self.paused = self.now + long,
            Event::ForeignSet(long) => {
                if self.server.holder().is_none() {
                    self.server.lock = Some((FOREIGN, self.now + 10 * S));
                    self.at(self.now + long, Event::ForeignEnds);
                }
            }
            Event::ForeignEnds => {
                if self.server.holder() == Some(FOREIGN) {
                    self.server.lock = None;
                }
            }
        }
    }

    pub(crate) fn send(&mut self, process: usize, command: Command, sender: Sender) -> u64 {
        match command {
            Command::Set { token, ttl }
            | Command::Acquire { token, ttl, .. }
            | Command::Renew { token, ttl } => {
                if self.processes[process].released.contains(&token) {
                    self.bad(format!("token: asked for after its release: {command:?}"));
                }
                let longest = self.processes[process].longest.entry(token).or_default();
                *longest = (*longest).max(ttl);
            }
            Command::Release { token } => {
                self.processes[process].released.insert(token);
            }
        }
        self.serial += 1;
        let (id, sent) = (self.serial, self.local(process));
        self.processes[process].requests.insert(id, (sent, command, sender));
        let is_lost = self.has_trouble() && self.chance(25);
        if !is_lost {
            let mut time = self.now + self.delay();
            if !self.has_trouble() {
                // A connection keeps the order: that of the callers, and that of the manager.
                let is_own = matches!(sender, Sender::Caller(..));
                let last = &mut self.processes[process].arrives[usize::from(is_own)];
                time = time.max(*last + 1);
                *last = time;
            }
            self.at(time, Event::Deliver(process, id, command));
        }
        if self.has_trouble() && self.chance(15) && !matches!(command, Command::Set { .. }) {
            // Sent again by the client, as it has no answer.
            let time = self.now + self.rng.u64(MS..4 * S);
            self.resent.extend(command.asks_with());
            self.at(time, Event::DeliverAgain(process, id, command));
        }
        self.at(self.now + self.answer_time(), Event::Timeout(process, id));
        id
    }

    fn deliver(&mut self, nth: usize, id: u64, command: Command) {
        if self.paused > self.now {
            let time = self.paused + self.rng.u64(1..=20);
            return self.at(time, Event::Deliver(nth, id, command));
        }
        let reply = self.server.run(command);
        self.trace(|| format!("    {reply:?}"));
        if let Command::Set { token, .. } = command
            && matches!(reply, Reply::Granted { .. })
            && self.processes[nth].released.contains(&token)
        {
            self.processes[nth].overtaken.insert(token);
        }
        self.check_exclusion("at the server");
        if !(self.has_trouble() && self.chance(25)) {
            let time = self.now + self.delay();
            self.at(time, Event::Answer(nth, id, reply));
        }
    }

    fn kill(&mut self, nth: usize) {
        self.check_killed(nth);
        self.processes[nth].dead = true;
        self.server.dead[nth] = true;
        for caller in &mut self.callers {
            if caller.setup.process == nth {
                (caller.phase, caller.held) = (Phase::Done, None);
            }
        }
    }

    fn replace_server(&mut self) {
        self.epoch += 1;
        self.replaced = self.now;
        self.server.replace();
        for process in &self.processes {
            self.lost.extend(&process.live);
        }
        for caller in &mut self.callers {
            caller.held.iter_mut().for_each(|guard| guard.tainted = true);
        }
        for nth in 0..self.processes.len() {
            let time = self.now + self.rng.u64(0..=300) * MS;
            let epoch = self.epoch;
            self.at(time, Event::Notice(nth, epoch));
        }
    }
}
