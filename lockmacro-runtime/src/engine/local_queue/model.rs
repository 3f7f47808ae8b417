//! Random schedules of several processes at one store: late, repeated and lost messages, frozen
//! processes, callers that are dropped or not polled. The oracles also have to catch each fault
//! that is built in on purpose ([`Mutant`]).
//!
//! All in one file, as the store, the network and the processes of a schedule share its state.

use std::collections::{BTreeMap, HashMap};

use fastrand::Rng;

use super::*;
use crate::value::fence::{Fence, FenceBlock};

const PROCESSES: usize = 3;
const TURN: u64 = 20;
/// Longest body, delay of a message, and time in which an awake caller is polled.
const BODY: u64 = 60;
const DELAY: u64 = 5;
/// Fences of one grant.
const BLOCK: u64 = 3;
/// A waiter that stays in the store's queue without asking again.
const QUEUED: u64 = 10_000;
const UNANSWERED: Duration = Duration::from_millis(100);

/// A fault that is built in on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    None,
    NoBoundOfTheTurn,
    LostTenurePassed,
    NoCheckAtTheTakeUp,
    FenceUsedTwice,
    DroppedPassNotHandedOn,
    OneTokenForTwoTurns,
    NoLapse,
    PlaceKeptWithoutWaiters,
}

type Token = u64;
type Caller = usize;

#[derive(Debug, Clone, Copy)]
struct Wish {
    ttl: u64,
    fenced: bool,
}

impl Wants for (Caller, Wish) {
    fn ttl(&self) -> Duration {
        Duration::from_millis(self.1.ttl)
    }

    fn is_fenced(&self) -> bool {
        self.1.fenced
    }
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Arrive(usize),
    Poll(usize, Caller),
    Drop(usize, Caller),
    Ends(usize, Caller),
    Watch(usize),
    /// A caller that asks the store for itself gives up.
    Unanswered(usize, Caller),
    /// The request of this number is sent again.
    Tick(usize, u64),
    /// At the store: a request of a process arrives, with its number, or the request of a caller
    /// that asks for itself.
    Asks(usize, Result<u64, Caller>, Token, Wish, u64),
    Releases(Token),
    /// At a process: an answer arrives. `Some` with the end of the ttl and the fence, when granted.
    Answer(usize, Result<u64, Caller>, Token, u64, Option<(u64, u64)>),
}

/// One schedule.
struct World {
    rng: Rng,
    mutant: Mutant,
    /// Nothing is lost, late, frozen or asleep.
    calm: bool,
    now: u64,
    last: u64,
    events: BTreeMap<(u64, u64), Event>,
    // The store.
    held: Option<(Token, u64)>,
    queue: VecDeque<(Token, usize, u64, Wish, u64)>,
    fence: u64,
    // The processes.
    lines: Vec<LocalQueue<Token, (Caller, Wish), Caller>>,
    frozen: [u64; PROCESSES],
    requests: HashMap<(usize, u64), (Token, Wish)>,
    tokens: [Token; PROCESSES],
    callers: Vec<Body>,
    /// The longest wait in other processes than the first.
    waits: u64,
    /// When the last holder takes its lease to end.
    believed: u64,
    largest_fence: u64,
}

/// A caller, and the lock that it holds.
#[derive(Debug)]
struct Body {
    process: usize,
    ticket: Ticket,
    wish: Wish,
    arrived: u64,
    sleeps: bool,
    asks: Option<Token>,
    held: Option<(Token, Tenure)>,
    over: bool,
}

impl World {
    fn new(seed: u64, mutant: Mutant, calm: bool) -> Self {
        let mut world = Self {
            rng: Rng::with_seed(seed),
            mutant,
            calm,
            now: 1_000,
            last: 0,
            events: BTreeMap::new(),
            held: None,
            queue: VecDeque::new(),
            fence: 0,
            lines: (0..PROCESSES).map(|_| LocalQueue::default()).collect(),
            frozen: [0; PROCESSES],
            requests: HashMap::new(),
            tokens: [0; PROCESSES],
            callers: Vec::new(),
            believed: 0,
            largest_fence: 0,
            waits: 0,
        };
        for _ in 0..world.rng.usize(5..40) {
            let (at, process) = (world.rng.u64(0..400), world.rng.usize(..PROCESSES));
            world.after(at, Event::Arrive(process));
        }
        world
    }

    /// A crowd in one process, one of whose callers sleeps, and a single caller in another one.
    fn crowd(seed: u64, mutant: Mutant) -> Self {
        let mut world = Self::new(seed, mutant, true);
        world.events.clear();
        for nth in 0..100 {
            world.after(nth * 10, Event::Arrive(0));
        }
        world.after(505, Event::Arrive(1));
        world
    }

    fn after(&mut self, later: u64, event: Event) {
        self.last += 1;
        self.events.insert((self.now + later, self.last), event);
    }

    /// Sends a message, which may be late, lost or doubled.
    fn send(&mut self, event: Event) {
        let delay = self.rng.u64(1..=DELAY);
        if self.calm || self.rng.u8(..) > 10 {
            self.after(delay, event);
        }
        if !self.calm && self.rng.u8(..) < 10 {
            let late = self.rng.u64(1..4_000);
            self.after(late, event);
        }
    }

    /// Releases a token until no copy of a request with it can arrive.
    fn retire(&mut self, token: Token) {
        for pause in [0, 30, 500, 5_000] {
            let delay = self.rng.u64(1..=DELAY);
            self.after(pause + delay, Event::Releases(token));
        }
    }

    fn run(mut self) -> Result<u64, String> {
        while let Some(((at, _), event)) = self.events.pop_first() {
            self.now = at;
            if at > 400_000 {
                return Err("it never ends".to_owned());
            }
            if let Some(process) = process_of(event) {
                if self.frozen[process] > at {
                    let later = self.frozen[process] - at + self.rng.u64(0..3);
                    self.after(later, event);
                    continue;
                }
                if !self.calm && self.rng.u16(..) < 200 {
                    self.frozen[process] = at + self.rng.u64(10..3_000);
                }
            }
            self.step(event)?;
            if let Some(process) = process_of(event)
                && let Some(due) = self.lines[process].lapses(UNANSWERED)
                && self.lines[process].has_waiters()
                && self.mutant != Mutant::NoLapse
            {
                let due = due.since(self.moment()).as_millis() as u64;
                self.after(due + 1, Event::Watch(process));
            }
        }
        if let Some(caller) = self.callers.iter().find(|caller| !caller.over) {
            return Err(format!("left behind: {caller:?}"));
        }
        if self.lines.iter().any(|line| !line.is_empty()) {
            return Err("a line is not empty".to_owned());
        }
        self.expire();
        match (self.held, self.queue.is_empty()) {
            (None, true) => Ok(self.waits),
            left => Err(format!("left at the store: {left:?}")),
        }
    }

    fn moment(&self) -> Moment {
        Moment::at(Duration::from_millis(self.now))
    }

    fn step(&mut self, event: Event) -> Result<(), String> {
        let (now, turn) = (self.moment(), self.turn());
        match event {
            Event::Arrive(process) => self.arrive(process),
            Event::Poll(process, id) => return self.poll(process, id),
            Event::Drop(process, id) if !self.callers[id].over => {
                let (ticket, held) = (self.callers[id].ticket, self.callers[id].held.is_some());
                if held {
                    return self.ends(process, id);
                }
                self.callers[id].over = true;
                let line = &mut self.lines[process];
                let had_pass = matches!(line.state, State::Passed { to, .. } if to == ticket);
                let effects = match self.callers[id].asks.take() {
                    Some(token) => {
                        self.retire(token);
                        self.lines[process].asker_failed(ticket, None)
                    }
                    None if had_pass && self.mutant == Mutant::DroppedPassNotHandedOn => {
                        let at = line.find(ticket).unwrap();
                        line.waiters.remove(at);
                        Effects::default()
                    }
                    None => line.leave(ticket, turn, now),
                };
                self.apply(process, effects);
                let line = &self.lines[process];
                if matches!(line.state, State::Passed { to, .. } if to == ticket) {
                    return Err("the lock was passed to a caller that has gone".to_owned());
                }
            }
            Event::Ends(process, id) => return self.ends(process, id),
            Event::Watch(process) => {
                let effects = self.lines[process].lapse(UNANSWERED, turn, now);
                self.apply(process, effects);
            }
            Event::Unanswered(process, id) => {
                if let Some(token) = self.callers[id].asks.take() {
                    self.retire(token);
                    let (ticket, wish) = (self.callers[id].ticket, self.callers[id].wish);
                    let line = &mut self.lines[process];
                    let effects = line.asker_failed(ticket, Some((id, wish)));
                    self.apply(process, effects);
                    self.after(0, Event::Poll(process, id));
                }
            }
            Event::Tick(process, number) => {
                if let Some((token, wish)) = self.requests.get(&(process, number)).copied() {
                    if !self.lines[process].has_waiters() {
                        return Err("a place without a waiter".to_owned());
                    }
                    self.send(Event::Asks(process, Ok(number), token, wish, self.now));
                    self.after(2_000, Event::Tick(process, number));
                }
            }
            Event::Asks(process, by, token, wish, sent) => {
                self.store_asked(process, by, token, wish, sent);
            }
            Event::Releases(token) => self.store_released(token),
            Event::Answer(process, by, token, sent, granted) => {
                return self.answered(process, by, token, sent, granted);
            }
            Event::Drop(..) => {}
        }
        Ok(())
    }

    fn turn(&self) -> Duration {
        match self.mutant {
            Mutant::NoBoundOfTheTurn => Duration::from_secs(3_600),
            _ => Duration::from_millis(TURN),
        }
    }

    fn arrive(&mut self, process: usize) {
        let (id, now) = (self.callers.len(), self.moment());
        let ttl = if self.calm { 30_000 } else { *self.rng.choice(&[100, 500, 30_000]).unwrap() };
        let fenced = self.rng.u8(..) < 60 && self.mutant != Mutant::FenceUsedTwice;
        let fenced = fenced || self.mutant == Mutant::FenceUsedTwice;
        let wish = Wish { ttl, fenced };
        let arrival = self.lines[process].arrive(true, now);
        let (Arrival::Asks(ticket) | Arrival::Waits(ticket)) = arrival else { return };
        let sleeps = if self.calm { id == 3 } else { self.rng.u8(..) < 20 };
        let mut caller = Body {
            process,
            ticket,
            wish,
            arrived: self.now,
            sleeps,
            asks: None,
            held: None,
            over: false,
        };
        if arrival == Arrival::Asks(ticket) {
            caller.sleeps = false;
            self.callers.push(caller);
            self.asks(process, id);
        } else {
            self.callers.push(caller);
            self.lines[process].wait(ticket, (id, wish), false);
            self.after(0, Event::Poll(process, id));
        }
        if !self.calm && self.rng.u8(..) < 60 {
            let at = self.rng.u64(0..300);
            self.after(at, Event::Drop(process, id));
        }
    }

    /// A caller asks the store for itself.
    fn asks(&mut self, process: usize, id: Caller) {
        let (token, wish) = (self.new_token(), self.callers[id].wish);
        self.callers[id].asks = Some(token);
        self.send(Event::Asks(process, Err(id), token, wish, self.now));
        self.after(100, Event::Unanswered(process, id));
    }

    fn new_token(&mut self) -> Token {
        self.last += 1;
        self.last
    }

    fn poll(&mut self, process: usize, id: Caller) -> Result<(), String> {
        let caller = &self.callers[id];
        if caller.over || caller.asks.is_some() || caller.held.is_some() {
            return Ok(());
        }
        let (ticket, now) = (self.callers[id].ticket, self.moment());
        let line = &mut self.lines[process];
        if self.mutant == Mutant::NoCheckAtTheTakeUp
            && let State::Passed { tenure, .. } = &mut line.state
        {
            let far = now.after(Duration::from_secs(60));
            (tenure.ends, tenure.kept_until) = (far, now);
        }
        let before = line
            .waiters
            .iter()
            .find(|waiter| waiter.ticket < ticket && !waiter.asleep && waiter.lapses == 0);
        let is_first = before.is_none_or(|waiter| waiter.ticket > ticket);
        let (found, effects) = line.poll(ticket, |_| true, |_| Some(id), now);
        self.apply(process, effects);
        if !is_first && matches!(found, Found::Lock(..)) {
            return Err("an awake caller was overtaken".to_owned());
        }
        match found {
            Found::Lock(tenure, token) => self.begins(id, tenure, token),
            Found::Nothing | Found::Refused(_) => Ok(()),
        }
    }

    /// A body begins under the lock.
    fn begins(&mut self, id: Caller, mut tenure: Tenure, token: Token) -> Result<(), String> {
        let (process, wish) = (self.callers[id].process, self.callers[id].wish);
        if self.believed > self.now {
            return Err(format!("two holders at {}: {:?}", self.now, self.callers[id]));
        }
        if self.held.is_none_or(|(held, until)| held != token || until <= self.now) {
            return Err("a body under a lock that the store has not".to_owned());
        }
        if wish.fenced {
            let fence = tenure.fences.map_or(0, |block| u64::from(block.first()));
            if fence <= self.largest_fence {
                return Err(format!("the fence {fence} after {}", self.largest_fence));
            }
            self.largest_fence = fence;
            if self.mutant != Mutant::FenceUsedTwice {
                tenure.fences = tenure.fences.and_then(FenceBlock::rest);
            }
        }
        if process > 0 {
            self.waits = self.waits.max(self.now - self.callers[id].arrived);
        }
        let own = self.moment().after(Duration::from_millis(wish.ttl * 99 / 100));
        tenure.ends = tenure.ends.min(own);
        let lease = tenure.ends.since(self.moment()).as_millis() as u64;
        self.believed = self.now + lease;
        self.callers[id].held = Some((token, tenure));
        let body = self.rng.u64(0..=BODY) * if self.calm { 1 } else { self.rng.u64(1..4) };
        self.after(body.min(lease), Event::Ends(process, id));
        Ok(())
    }

    fn ends(&mut self, process: usize, id: Caller) -> Result<(), String> {
        let Some((token, tenure)) = self.callers[id].held.take() else { return Ok(()) };
        let (now, turn) = (self.moment(), self.turn());
        self.callers[id].over = true;
        self.believed = self.believed.min(self.now);
        let (is_lost, mut tenure) = (tenure.ends <= now, Tenure { was_held: true, ..tenure });
        if self.mutant == Mutant::LostTenurePassed {
            tenure.ends = now.after(Duration::from_secs(60));
            tenure.kept_until = now;
        }
        let passes = !is_lost || self.mutant == Mutant::LostTenurePassed;
        let Body { ticket, .. } = self.callers[id];
        let tenure = passes.then_some(tenure);
        let line = &mut self.lines[process];
        let (passed, effects) = line.release(ticket, tenure, || Some(token), turn, now);
        if !passed {
            self.retire(token);
        }
        self.apply(process, effects);
        Ok(())
    }

    fn apply(&mut self, process: usize, effects: Effects<Token, Caller>) {
        for id in effects.wake {
            let pause = match self.callers[id].sleeps {
                true => 20_000,
                false => self.rng.u64(0..2),
            };
            self.callers[id].sleeps = false;
            self.after(pause, Event::Poll(process, id));
        }
        if let Some(token) = effects.release {
            self.retire(token);
        }
        if effects.withdraw && self.mutant != Mutant::PlaceKeptWithoutWaiters {
            let of_process = |(owner, _): &(usize, u64)| *owner == process;
            let ours: Vec<_> = self.requests.keys().copied().filter(of_process).collect();
            for request in ours {
                if let Some((token, _)) = self.requests.remove(&request) {
                    self.retire(token);
                }
            }
        }
        if let Some(number) = effects.request {
            let token = match self.mutant {
                Mutant::OneTokenForTwoTurns if self.tokens[process] > 0 => self.tokens[process],
                _ => self.new_token(),
            };
            self.tokens[process] = token;
            let Some((&(_, wish), fenced)) = self.lines[process].first() else { return };
            self.requests.insert((process, number), (token, Wish { fenced, ..wish }));
            self.after(0, Event::Tick(process, number));
        }
    }

    fn answered(
        &mut self,
        process: usize,
        by: Result<u64, Caller>,
        token: Token,
        sent: u64,
        granted: Option<(u64, u64)>,
    ) -> Result<(), String> {
        let tenure = granted.map(|(px, fence)| Tenure {
            began: self.moment(),
            sent: Moment::at(Duration::from_millis(sent)),
            ends: Moment::at(Duration::from_millis(sent + px * 99 / 100)),
            kept_until: self.moment().after(Duration::from_millis(px)),
            fences: block(fence),
            was_held: false,
        });
        match (by, tenure) {
            (Ok(number), tenure) => {
                let asked = self.requests.get(&(process, number));
                if asked.is_none_or(|(asked, _)| *asked != token) {
                    return Ok(());
                }
                let now = self.moment();
                let effects = match tenure {
                    Some(tenure) if tenure.ends > now => {
                        self.requests.remove(&(process, number));
                        self.lines[process].granted(number, tenure, token, now)
                    }
                    Some(_) => return Ok(()),
                    None => self.lines[process].found_busy(number),
                };
                self.apply(process, effects);
            }
            (Err(id), tenure) => {
                if self.callers[id].asks.take_if(|asked| *asked == token).is_none() {
                    return Ok(());
                }
                let (ticket, wish) = (self.callers[id].ticket, self.callers[id].wish);
                let tenure = tenure.filter(|tenure| tenure.ends > self.moment());
                let line = &mut self.lines[process];
                let Some(tenure) = tenure else {
                    let effects = line.asker_refused(ticket, Some((id, wish)));
                    self.retire(token);
                    self.apply(process, effects);
                    self.after(0, Event::Poll(process, id));
                    return Ok(());
                };
                let (_, effects) = line.asker_granted(ticket);
                self.apply(process, effects);
                self.begins(id, tenure, token)?;
            }
        }
        Ok(())
    }
}

/// The store: one key with a ttl, and its queue.
impl World {
    fn expire(&mut self) {
        let now = self.now;
        self.held.take_if(|(_, until)| *until <= now);
        self.queue.retain(|(.., until)| *until > now);
    }

    fn store_asked(
        &mut self,
        process: usize,
        by: Result<u64, Caller>,
        token: Token,
        wish: Wish,
        sent: u64,
    ) {
        self.expire();
        let place = self.queue.iter().position(|(queued, ..)| *queued == token);
        if self.held.is_none() {
            match (place, by) {
                (Some(0), _) => drop(self.queue.pop_front()),
                (None, _) if self.queue.is_empty() => {}
                _ => self.hand_off(),
            }
        }
        match self.held {
            None => self.held = Some((token, self.now + wish.ttl)),
            Some((held, until)) if held == token => {
                self.held = Some((token, until.max(self.now + wish.ttl)));
            }
            Some(_) => {
                if let Ok(number) = by {
                    let until = self.now + QUEUED;
                    match self.queue.iter_mut().find(|(queued, ..)| *queued == token) {
                        Some(place) => place.4 = until,
                        None => self.queue.push_back((token, process, number, wish, until)),
                    }
                }
                return self.send(Event::Answer(process, by, token, sent, None));
            }
        }
        let fence = if wish.fenced { self.next_fence() } else { 0 };
        self.send(Event::Answer(process, by, token, sent, Some((wish.ttl, fence))));
    }

    fn store_released(&mut self, token: Token) {
        self.expire();
        self.queue.retain(|(queued, ..)| *queued != token);
        if self.held.take_if(|(held, _)| *held == token).is_some() {
            self.hand_off();
        }
    }

    fn hand_off(&mut self) {
        if let Some((token, process, number, wish, _)) = self.queue.pop_front() {
            let px = wish.ttl.min(5_000);
            self.held = Some((token, self.now + px));
            let fence = if wish.fenced { self.next_fence() } else { 0 };
            self.send(Event::Answer(process, Ok(number), token, self.now, Some((px, fence))));
        }
    }

    /// The last of the next fences.
    fn next_fence(&mut self) -> u64 {
        self.fence += BLOCK;
        self.fence
    }
}

/// The fences of a grant whose last fence is this one; `None` for 0.
fn block(last: u64) -> Option<FenceBlock> {
    let last = Fence::try_from(last).ok().filter(|_| last > 0)?;
    let first = Fence::try_from(u64::from(last) + 1 - BLOCK).ok()?;
    Some(FenceBlock::new(first, last))
}

/// The process at which an event happens.
fn process_of(event: Event) -> Option<usize> {
    match event {
        Event::Arrive(process)
        | Event::Poll(process, _)
        | Event::Drop(process, _)
        | Event::Ends(process, _)
        | Event::Watch(process)
        | Event::Unanswered(process, _)
        | Event::Tick(process, _)
        | Event::Answer(process, ..) => Some(process),
        Event::Asks(..) | Event::Releases(_) => None,
    }
}

/// Runs these schedules. Returns the first failure.
fn broken(mutant: Mutant, schedules: u64) -> Option<String> {
    (0..schedules).find_map(|seed| {
        let broken = World::new(seed, mutant, false).run().err();
        broken.map(|broken| format!("seed {seed}: {broken}"))
    })
}

#[test]
fn random_schedules_break_nothing() {
    assert_eq!(broken(Mutant::None, 6_000), None);
}

#[test]
fn every_mutant_is_noticed() {
    for (mutant, oracle) in [
        (Mutant::LostTenurePassed, "two holders"),
        (Mutant::NoCheckAtTheTakeUp, "the store has not"),
        (Mutant::FenceUsedTwice, "the fence"),
        (Mutant::DroppedPassNotHandedOn, "a caller that has gone"),
        (Mutant::OneTokenForTwoTurns, "the store has not"),
        (Mutant::PlaceKeptWithoutWaiters, "without a waiter"),
    ] {
        let broken = broken(mutant, 3_000);
        assert!(
            broken.as_ref().is_some_and(|text| text.contains(oracle)),
            "{mutant:?}: {broken:?}"
        );
    }
}

/// The longest wait of a caller in another process than the crowd's.
fn foreign_wait(mutant: Mutant) -> u64 {
    let waits = |seed| World::crowd(seed, mutant).run().expect("nothing is broken");
    (0..50).map(waits).max().unwrap_or_default()
}

#[test]
fn a_waiter_of_another_process_waits_for_a_turn_and_a_body() {
    // A turn, a body, a pass that is not taken up, and the messages sent meanwhile.
    let bound = TURN + BODY + TAKE_UP.as_millis() as u64 + 10 * DELAY;
    let waits = foreign_wait(Mutant::None);
    assert!(waits <= bound, "{waits} ms");
    for mutant in [Mutant::NoBoundOfTheTurn, Mutant::NoLapse] {
        let waits = foreign_wait(mutant);
        assert!(waits > 3 * bound, "{mutant:?}: {waits} ms");
    }
}
