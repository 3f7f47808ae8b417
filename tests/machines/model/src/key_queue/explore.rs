//! Every interleaving of a few callers at one queue, in which no event is lost and time passes only
//! when the queue waits for it.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;

use super::engine::{Arrival, Effects, Event, Found, KeyQueue, Tenure, Ticket};
use super::server::{FOREIGN, LAST, S, Token, Wish};
use super::sys::time::Moment;
use super::value::fence::FenceBlock;

const TTL: u64 = S;

/// What a caller wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kind {
    /// It waits while the lock is busy.
    pub waits: bool,
    /// It needs a fence.
    pub fenced: bool,
}

impl Kind {
    /// All pairs of callers that differ for the queue.
    pub fn pairs() -> Vec<[Self; 2]> {
        let kinds = [(true, false), (true, true), (false, false)];
        let kinds = kinds.map(|(waits, fenced)| Self { waits, fenced });
        kinds.iter().flat_map(|one| kinds.iter().map(|two| [*one, *two])).collect()
    }
}

/// How often each thing may happen that need not happen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Budget {
    /// Another program takes the lock.
    pub foreign: u8,
    /// A caller is polled for another reason than its waker.
    pub polls: u8,
    /// A request has no answer.
    pub unknown: u8,
    /// A token is released while it is asked for.
    pub spent: u8,
    /// A shutdown, or a refusal of all requests for fences.
    pub closes: u8,
}

/// The answer to a caller's own request.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Granted,
    Contended(Option<Token>),
    Unknown,
}

#[derive(Debug, Clone, Default)]
enum Phase {
    #[default]
    Out,
    Asks(Ticket, Token, Option<Answer>),
    Waits(Ticket),
    Undecided,
    Holds(Ticket, Tenure<Token>),
    Done,
}

#[derive(Debug, Clone, Default)]
struct Caller {
    kind: Kind,
    phase: Phase,
    woken: bool,
    is_again: bool,
    is_behind: bool,
    is_sent_away: bool,
}

#[derive(Debug, Clone, Default)]
struct Small {
    queue: KeyQueue<Wish, usize>,
    callers: Vec<Caller>,
    store: Option<Token>,
    request: Option<Token>,
    told: bool,
    /// The token of a caller's own request that found another holder.
    known: Option<Token>,
    releases: Vec<Token>,
    retired: Vec<Token>,
    now: Moment,
    last: u64,
    left: Budget,
    slept: bool,
    closed: bool,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Arrive(usize),
    Answer(usize),
    Unknown(usize),
    Poll(usize),
    Leave(usize),
    End(usize, bool),
    Request,
    Spent,
    Release,
    Time,
    ForeignSets,
    ForeignEnds,
    Close(bool),
}

struct Path(Step, Option<Rc<Path>>);

/// What a search has found.
#[derive(Debug, Default)]
pub struct Explored {
    /// Number of states.
    pub states: u64,
    /// What is wrong, and the steps to it.
    pub failure: Option<(String, Vec<String>)>,
}

impl Small {
    fn new(kinds: &[Kind], left: Budget) -> Self {
        let callers = kinds.iter().map(|kind| Caller { kind: *kind, ..Caller::default() });
        let now = Moment::at(Duration::from_secs(1_000));
        Self { callers: callers.collect(), now, left, ..Self::default() }
    }

    /// What may happen, and whether it has to happen in the end.
    fn steps(&self) -> Vec<(Step, bool)> {
        let mut steps = Vec::new();
        for (nth, caller) in self.callers.iter().enumerate() {
            match &caller.phase {
                Phase::Out => steps.push((Step::Arrive(nth), true)),
                Phase::Asks(_, _, None) => {
                    steps.push((Step::Answer(nth), true));
                    if self.left.unknown > 0 {
                        steps.push((Step::Unknown(nth), false));
                    }
                }
                Phase::Holds(..) => {
                    steps.push((Step::End(nth, true), true));
                    steps.push((Step::End(nth, false), false));
                }
                _ => {}
            }
            if matches!(caller.phase, Phase::Asks(..) | Phase::Waits(_) | Phase::Undecided) {
                if caller.woken {
                    steps.push((Step::Poll(nth), true));
                } else if self.left.polls > 0 {
                    steps.push((Step::Poll(nth), false));
                }
                steps.push((Step::Leave(nth), false));
            }
        }
        if let Some(tok) = self.request {
            // Releases overtake requests in so far that there are never many.
            if (self.store.is_none_or(|held| held == tok) || !self.told) && self.releases.len() < 2
            {
                steps.push((Step::Request, true));
            }
            if self.left.spent > 0 {
                steps.push((Step::Spent, false));
            }
        }
        // A connection keeps their order.
        if !self.releases.is_empty() {
            steps.push((Step::Release, true));
        }
        if self.queue.due().is_some() {
            steps.push((Step::Time, true));
        }
        match self.store {
            Some(FOREIGN) => steps.push((Step::ForeignEnds, true)),
            None if self.left.foreign > 0 => steps.push((Step::ForeignSets, false)),
            _ => {}
        }
        if self.left.closes > 0 {
            steps.extend([(Step::Close(false), false), (Step::Close(true), false)]);
        }
        steps
    }

    fn apply(&mut self, effects: Effects<Token, usize>) -> Result<(), String> {
        if let Some(tok) = effects.ask {
            if self.retired.contains(&tok) {
                return Err(format!("retired token asked for: {tok:?}"));
            }
            (self.request, self.told) = (Some(tok), false);
        }
        if let Some(tok) = effects.release {
            self.request.take_if(|asked| *asked == tok);
            let holds =
                |caller: &Caller| matches!(&caller.phase, Phase::Holds(_, t) if t.token == tok);
            if self.callers.iter().any(holds) {
                return Err(format!("released under its holder: {tok:?}"));
            }
            if !self.retired.contains(&tok) {
                self.retired.push(tok);
            }
            self.releases.push(tok);
        }
        effects.wake.into_iter().for_each(|nth| self.callers[nth].woken = true);
        Ok(())
    }

    fn on(&mut self, event: Event<Token>) -> Result<(), String> {
        let effects = self.queue.on(event, self.now);
        self.after(effects)
    }

    fn after(&mut self, effects: Effects<Token, usize>) -> Result<(), String> {
        self.apply(effects)?;
        for caller in &mut self.callers {
            caller.woken |= matches!(caller.phase, Phase::Undecided);
        }
        Ok(())
    }

    fn tenure(&self, token: Token) -> Tenure<Token> {
        let fences = self.queue.is_fenced().then(|| FenceBlock::new(1, 100));
        let (began, ends, kept_until) = (self.now, Moment::NEVER, Moment::at(Duration::ZERO));
        Tenure { token, began, sent: began, ends, kept_until, fences }
    }

    fn holds(&mut self, nth: usize, ticket: Ticket, tenure: Tenure<Token>) -> Result<(), String> {
        if self.callers.iter().any(|caller| matches!(caller.phase, Phase::Holds(..))) {
            return Err("two holders".to_owned());
        }
        if self.store != Some(tenure.token) {
            return Err(format!("the store has {:?}, not {:?}", self.store, tenure.token));
        }
        let is_before = |caller: &Caller| {
            !caller.is_sent_away && matches!(caller.phase, Phase::Waits(other) if other < ticket)
        };
        if !self.slept && self.callers.iter().any(is_before) {
            return Err("order".to_owned());
        }
        self.callers[nth].phase = Phase::Holds(ticket, tenure);
        Ok(())
    }

    fn take(&mut self, step: Step) -> Result<(), String> {
        LAST.with(|last| last.set(self.last));
        let taken = self.taken(step);
        self.last = LAST.with(|last| last.get());
        taken
    }

    fn taken(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Arrive(nth) => self.arrive(nth),
            Step::Answer(nth) => {
                if let Phase::Asks(_, tok, answer) = &mut self.callers[nth].phase {
                    let is_granted = self.store.is_none_or(|held| held == *tok);
                    // A request that arrives after the token was retired locks nothing for long.
                    let is_granted = is_granted && !self.retired.contains(tok);
                    *answer = Some(match is_granted {
                        true => Answer::Granted,
                        false => Answer::Contended(self.store),
                    });
                    if is_granted {
                        self.store = Some(*tok);
                    }
                }
                self.callers[nth].woken = true;
                Ok(())
            }
            Step::Unknown(nth) => {
                self.left.unknown -= 1;
                if let Phase::Asks(_, tok, answer) = &mut self.callers[nth].phase {
                    if self.store.is_none() && !self.retired.contains(tok) {
                        self.store = Some(*tok);
                    }
                    *answer = Some(Answer::Unknown);
                }
                self.callers[nth].woken = true;
                Ok(())
            }
            Step::Poll(nth) => {
                self.left.polls -= u8::from(!self.callers[nth].woken);
                self.callers[nth].woken = false;
                self.poll(nth)
            }
            Step::Leave(nth) => {
                let phase = std::mem::replace(&mut self.callers[nth].phase, Phase::Done);
                match phase {
                    Phase::Asks(ticket, ..) | Phase::Waits(ticket) => {
                        self.on(Event::Leaves(ticket))
                    }
                    _ => Ok(()),
                }
            }
            Step::End(nth, passes) => {
                let phase = std::mem::replace(&mut self.callers[nth].phase, Phase::Done);
                let Phase::Holds(by, tenure) = phase else { return Ok(()) };
                let turn = if passes { Duration::MAX } else { Duration::ZERO };
                self.on(Event::Ends { by, tenure, turn, changed: None })
            }
            Step::Request => {
                let Some(tok) = self.request else { return Ok(()) };
                if self.store.is_none_or(|held| held == tok) {
                    (self.store, self.request) = (Some(tok), None);
                    let tenure = self.tenure(tok);
                    return self.on(Event::Granted(tenure));
                }
                self.told = true;
                self.on(Event::Answered { token: tok, contended: true })
            }
            Step::Spent => {
                self.left.spent -= 1;
                let Some(tok) = self.request.take() else { return Ok(()) };
                self.retired.push(tok);
                self.store.take_if(|held| *held == tok);
                self.on(Event::Spent(tok))
            }
            Step::Release => {
                let tok = self.releases.remove(0);
                self.store.take_if(|held| *held == tok);
                self.queue.released(&tok);
                self.after(Effects::default())
            }
            Step::Time => {
                self.now = self.queue.due().unwrap_or(self.now).max(self.now);
                self.slept = true;
                self.on(Event::Time)
            }
            Step::ForeignSets => {
                self.left.foreign -= 1;
                self.store = Some(FOREIGN);
                Ok(())
            }
            Step::ForeignEnds => {
                self.store = None;
                Ok(())
            }
            Step::Close(for_fences) => {
                (self.left.closes, self.closed) = (0, !for_fences);
                for caller in &mut self.callers {
                    let is_there = matches!(caller.phase, Phase::Asks(..) | Phase::Waits(_));
                    caller.is_sent_away = is_there && caller.kind.fenced && for_fences;
                }
                self.on(Event::Closes { for_fences })
            }
        }
    }

    fn arrive(&mut self, nth: usize) -> Result<(), String> {
        let Kind { waits, fenced } = self.callers[nth].kind;
        if self.closed {
            self.callers[nth].phase = Phase::Done;
            return Ok(());
        }
        let token = Token::new(0, TTL);
        let wish = Wish { token, ttl: TTL, fenced, waits };
        let until = self.now.after(Duration::from_millis(100));
        let (arrival, effects) = self.queue.arrive(wish, token, self.callers[nth].is_again, until);
        self.apply(effects)?;
        self.callers[nth].is_again = true;
        self.callers[nth].is_behind = matches!(arrival, Arrival::Asks { is_behind: true, .. });
        let woken = matches!(arrival, Arrival::Waits(_));
        self.callers[nth].phase = match arrival {
            Arrival::Asks { by: ticket, .. } => Phase::Asks(ticket, token, None),
            Arrival::Waits(ticket) => Phase::Waits(ticket),
            Arrival::Undecided => Phase::Undecided,
            Arrival::Busy => {
                let is_known = self.known.is_some() && self.known == self.request;
                let is_held = self.store.is_some_and(|held| !self.retired.contains(&held));
                let is_told = is_held || self.told || is_known;
                if !is_told {
                    return Err("busy, and nobody has the lock".to_owned());
                }
                Phase::Done
            }
        };
        self.callers[nth].woken = woken;
        Ok(())
    }

    fn poll(&mut self, nth: usize) -> Result<(), String> {
        let waits = self.callers[nth].kind.waits;
        // After its own request the caller waits, or arrives again.
        let next = |ticket| if waits { Phase::Waits(ticket) } else { Phase::Undecided };
        match self.callers[nth].phase.clone() {
            Phase::Undecided => self.arrive(nth),
            Phase::Asks(ticket, tok, answer) => {
                // A late grant is told to the queue, which knows that it is void.
                let is_granted = matches!(answer, Some(Answer::Granted));
                if !self.queue.is_asking(ticket) && !is_granted {
                    self.callers[nth].phase = next(ticket);
                    return self.poll(nth);
                }
                match answer {
                    Some(Answer::Granted) => {
                        let effects = self.queue.granted_to(ticket);
                        self.after(effects)?;
                        if self.queue.holder() != Some(ticket) {
                            self.callers[nth].phase = next(ticket);
                            return self.poll(nth);
                        }
                        let fences = self.callers[nth].kind.fenced.then(|| FenceBlock::new(1, 100));
                        self.holds(nth, ticket, Tenure { fences, ..self.tenure(tok) })
                    }
                    Some(Answer::Contended(holder)) => {
                        let is_own = holder.is_some_and(|held| self.retired.contains(&held));
                        if !is_own {
                            self.known = Some(tok);
                        }
                        let is_again = !waits && self.callers[nth].is_behind;
                        if is_own && !waits && !is_again {
                            return Err("refused by a release of its own process".to_owned());
                        }
                        self.callers[nth].woken = waits || is_again;
                        self.callers[nth].phase = match waits {
                            true => Phase::Waits(ticket),
                            false if is_again => Phase::Undecided,
                            false => Phase::Done,
                        };
                        self.on(Event::NotGrantedTo { ticket, contended: true })
                    }
                    Some(Answer::Unknown) if waits => {
                        self.callers[nth].phase = Phase::Waits(ticket);
                        self.callers[nth].woken = true;
                        self.on(Event::NotGrantedTo { ticket, contended: false })
                    }
                    Some(Answer::Unknown) => {
                        self.callers[nth].phase = Phase::Done;
                        self.on(Event::Leaves(ticket))
                    }
                    None => Ok(()),
                }
            }
            Phase::Waits(ticket) => self.poll_waiter(nth, ticket),
            _ => Ok(()),
        }
    }

    fn poll_waiter(&mut self, nth: usize, ticket: Ticket) -> Result<(), String> {
        let waker = |last: Option<&usize>| (last != Some(&nth)).then_some(nth);
        let (found, effects) = self.queue.poll(ticket, waker, || None, self.now);
        self.apply(effects)?;
        match found {
            Found::Nothing => Ok(()),
            Found::Gone if self.closed || self.callers[nth].is_sent_away => {
                self.callers[nth].phase = Phase::Done;
                Ok(())
            }
            Found::Gone => {
                self.callers[nth].phase = Phase::Out;
                Ok(())
            }
            Found::Lock(tenure) => {
                if self.callers[nth].kind.fenced && tenure.fences.is_none() {
                    return Err("a fence is missing".to_owned());
                }
                self.holds(nth, ticket, tenure)
            }
        }
    }

    /// Whether a caller waits, or something is left, of a state in which nothing has to happen.
    fn is_stuck(&self) -> bool {
        let waits = |caller: &Caller| {
            matches!(caller.phase, Phase::Asks(..) | Phase::Waits(_) | Phase::Undecided)
        };
        self.callers.iter().any(waits) || !self.queue.is_unused() || self.store.is_some()
    }

    /// The state without times, and with tokens in the order in which they appear.
    fn text(&self) -> String {
        let Self { queue, callers, store, request, told, known, releases, .. } = self;
        let mut text = format!("{queue:?}{callers:?}{store:?}{request:?}{told:?}{known:?}");
        text += &format!("{releases:?}{:?}{:?}{:?}", self.left, self.slept, self.closed);
        for name in "last widens until missed began sent ends kept_until".split(' ') {
            text = without(&text, &format!("{name}: "));
        }
        with_ranked_tickets(&with_ordered_tokens(&text))
    }

    fn key(&self) -> u128 {
        let text = self.text();
        let hash = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            (salt, &text).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        hash(1) << 64 | hash(2)
    }
}

fn without(text: &str, name: &str) -> String {
    let mut parts = text.split(name);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find([',', ' ', '}', ')']).unwrap_or(part.len());
        out.push_str(&part[end..]);
    }
    out
}

fn with_ordered_tokens(text: &str) -> String {
    let mut known: Vec<&str> = Vec::new();
    let mut parts = text.split("Token(");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (number, rest) = part.split_once(')').unwrap_or((part, ""));
        let nth = known.iter().position(|other| *other == number).unwrap_or_else(|| {
            known.push(number);
            known.len() - 1
        });
        out.push_str(&format!("T{nth}{rest}"));
    }
    out
}

/// Tickets by their order.
fn with_ranked_tickets(text: &str) -> String {
    const NAMES: [&str; 6] = ["ticket: ", "Asks(", "Waits(", "Held(", "Holds(", "by: "];
    let mut found: Vec<(usize, usize, u64)> = Vec::new();
    for name in NAMES {
        for (at, _) in text.match_indices(name) {
            let from = at + name.len();
            let digits = text[from..].bytes().take_while(u8::is_ascii_digit).count();
            if digits > 0 {
                found.push((from, digits, text[from..from + digits].parse().unwrap_or(0)));
            }
        }
    }
    found.sort();
    let mut all: Vec<_> = found.iter().map(|(_, _, ticket)| *ticket).collect();
    all.sort();
    all.dedup();
    let (mut out, mut last) = (String::new(), 0);
    for (from, digits, ticket) in found {
        out.push_str(&text[last..from]);
        out.push_str(&all.binary_search(&ticket).unwrap_or(0).to_string());
        last = from + digits;
    }
    out.push_str(&text[last..]);
    out
}

/// Searches every interleaving of these callers.
pub fn explore(kinds: &[Kind], budget: Budget, most: u64) -> Explored {
    let mut explored = Explored::default();
    let mut seen = HashSet::new();
    let first = Small::new(kinds, budget);
    seen.insert(first.key());
    let mut stack: Vec<(Small, Option<Rc<Path>>)> = vec![(first, None)];
    while let Some((state, path)) = stack.pop() {
        explored.states += 1;
        if explored.states > most {
            explored.failure = Some(("too many states".to_owned(), Vec::new()));
            return explored;
        }
        let steps = state.steps();
        if !steps.iter().any(|(_, has_to)| *has_to) && state.is_stuck() {
            let what = format!("stuck: {:?} {:?}", state.queue, state.callers);
            explored.failure = Some((what, steps_to(path)));
            return explored;
        }
        for (step, _) in steps {
            let mut next = state.clone();
            let taken = next.take(step);
            let path = Some(Rc::new(Path(step, path.clone())));
            if let Err(what) = taken {
                explored.failure = Some((what, steps_to(path)));
                return explored;
            }
            if seen.insert(next.key()) {
                stack.push((next, path));
            }
        }
    }
    explored
}

fn steps_to(path: Option<Rc<Path>>) -> Vec<String> {
    let back = std::iter::successors(path, |path| path.1.clone());
    let mut steps: Vec<_> = back.map(|path| format!("{:?}", path.0)).collect();
    steps.reverse();
    steps
}
