//! Replays what servers did, and which bodies ran, into the model of the lock: an event that the
//! model does not allow fails.
//!
//! The model has one lock at one server, so each lock of each server is replayed by itself.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use lockmacro_model_tests::event::{Event, Reply};
use lockmacro_model_tests::replay::Replay;

use crate::mutants;
use crate::processes::scripts::Script;
use crate::processes::sim::sim;
use crate::processes::work::{label_of, name_of};
use crate::server::{Lock, Served};

#[derive(Default)]
pub(crate) struct Traces {
    locks: RefCell<BTreeMap<(usize, String), Trace>>,
    /// The body under each key, and until when it relies on the lock.
    bodies: RefCell<BTreeMap<usize, (u64, String, Duration)>>,
    /// Locks are gone, and bodies may overlap.
    is_lost: Cell<bool>,
    /// The scripts by their hashes.
    scripts: RefCell<BTreeMap<Vec<u8>, Option<Script>>>,
}

/// A lock, and the state of it that was replayed last.
#[derive(Default)]
struct Trace {
    replay: Replay,
    last: Lock,
}

/// Whether traces are replayed: not with mutants that another oracle has to catch.
pub(crate) fn is_on() -> bool {
    mutants::expected().is_none_or(|oracle| oracle == "model")
}

impl Traces {
    /// A server has served a command.
    pub(crate) fn served(&self, host: usize, served: &Served) {
        let script = served.script.as_ref().map(|text| self.script(&served.request[1], text));
        let mut locks = self.locks.borrow_mut();
        for (nth, (name, before, after)) in served.locks.iter().enumerate() {
            let trace = locks.entry((host, name.clone())).or_default();
            for event in events((served, script), nth, (&trace.last, before, after)) {
                if let Err(why) = trace.replay.event(&event) {
                    refuse(host, name, &event, &why);
                }
            }
            trace.last.clone_from(after);
        }
    }

    /// What a script does, which is known by its text or hash.
    fn script(&self, name: &[u8], text: &[u8]) -> Option<Script> {
        if let Some(script) = self.scripts.borrow().get(name) {
            return *script;
        }
        let found = Script::of(text);
        self.scripts.borrow_mut().insert(name.to_vec(), found);
        found
    }

    /// A body begins at a single server, or at the primary.
    pub(crate) fn began(&self, number: u64, key: usize, fence: Option<u64>) {
        if !self.replays_bodies() {
            return;
        }
        let (sim, name) = (sim(), name_of(key));
        let process = sim.current().expect("a process").nth;
        let before = self.bodies.borrow_mut().remove(&key);
        if let Some((_, token, _)) = before.filter(|(_, _, until)| *until <= sim.now()) {
            self.event(&name, Event::Ended { token });
        }
        let (held, now) = {
            let host = &mut sim.network.hosts.borrow_mut()[0];
            let now = host.clock(sim.now());
            (host.server.string(&name, now), sim.now())
        };
        // If it is not held by this process, the model does not allow it.
        let ours = label_of(process);
        let held = held.map(|(token, _)| token).filter(|token| token.starts_with(&ours));
        let token = held.unwrap_or(ours);
        self.event(&name, Event::Began { token: token.clone(), fence });
        self.bodies.borrow_mut().insert(key, (number, token, now));
    }

    /// A body relies on its locks until then.
    pub(crate) fn relies(&self, number: u64, until: Duration) {
        let mut bodies = self.bodies.borrow_mut();
        let ours = bodies.values_mut().filter(|(other, ..)| *other == number);
        ours.for_each(|(_, _, last)| *last = until.max(*last));
    }

    /// A body has ended, or died.
    pub(crate) fn ended(&self, number: u64) {
        let is_ours = |(_, (other, ..)): &(&usize, &(u64, String, Duration))| *other == number;
        let keys: Vec<_> =
            self.bodies.borrow().iter().filter(is_ours).map(|(key, _)| *key).collect();
        for key in keys {
            if let Some((_, token, _)) = self.bodies.borrow_mut().remove(&key) {
                self.event(&name_of(key), Event::Ended { token });
            }
        }
    }

    /// Locks are gone from servers while bodies rely on them.
    pub(crate) fn lose(&self) {
        self.is_lost.set(true);
    }

    fn replays_bodies(&self) -> bool {
        is_on() && !self.is_lost.get() && sim().network.hosts.borrow().len() == 1
    }

    fn event(&self, name: &str, event: Event) {
        if self.replays_bodies() {
            let mut locks = self.locks.borrow_mut();
            let trace = locks.entry((0, name.to_owned())).or_default();
            if let Err(why) = trace.replay.event(&event) {
                refuse(0, name, &event, &why);
            }
        }
    }
}

fn refuse(host: usize, name: &str, event: &Event, why: &str) {
    sim().fails("model", format_args!("s{host} {name}: {event:?} is not allowed: {why}"));
}

/// What happened at the `nth` lock of a command, for the model: what is gone since the last one,
/// who has left the queue, the command itself, and what is there now.
fn events(call: Call<'_>, nth: usize, states: (&Lock, &Lock, &Lock)) -> Vec<Event> {
    let (last, before, after) = states;
    let mut events = Vec::new();
    if last.held.is_some() && before.held.is_none() {
        events.push(Event::Freed);
    }
    let left = |token: &&String| !before.queue.contains(token);
    events.extend(last.queue.iter().filter(left).map(|token| Event::Left { token: token.clone() }));
    let (actor, main) = main(call, nth, before, after);
    let changed = before.held != after.held;
    let granted = after.held.as_ref().filter(|_| changed);
    let left = |token: &&String| {
        !after.queue.contains(token) && Some(*token) != actor.as_ref() && Some(*token) != granted
    };
    let left = before.queue.iter().filter(left);
    events.extend(left.map(|token| Event::Left { token: token.clone() }));
    let keeps = matches!(main, Some(Event::Released { keeps: true, .. }));
    events.extend(main);
    if let Some(token) = granted.filter(|token| Some(*token) != actor.as_ref() && !keeps) {
        // Its fences are in the push.
        events.push(Event::HandedOff { token: token.clone(), fences: None });
    }
    events.push(Event::Seen { held: after.held.clone(), queue: after.queue.clone() });
    events
}

/// The token of the caller, and what it did.
fn main(
    (served, script): Call<'_>,
    nth: usize,
    before: &Lock,
    after: &Lock,
) -> (Option<String>, Option<Event>) {
    let word = |at: usize| {
        let word = served.request.get(at);
        word.map(|word| String::from_utf8_lossy(word).into_owned()).unwrap_or_default()
    };
    let reply = String::from_utf8_lossy(&served.reply);
    let (first, lines) = (reply.chars().next(), reply.split("\r\n").collect::<Vec<_>>());
    if first == Some('-') {
        return (None, None);
    }
    let Some(script) = script else {
        let name = word(0).to_lowercase();
        let token = word(2);
        let event = match name.as_str() {
            "set" => Some(Event::Set { token: token.clone(), granted: first == Some('+') }),
            _ if before.held.is_some() && after.held.is_none() => Some(Event::Freed),
            _ => None,
        };
        return (Some(token).filter(|_| name == "set"), event);
    };
    let keys = word(2).parse::<usize>().unwrap_or_default();
    let argument = |nth: usize| word(2 + keys + nth);
    let mut token = argument(1);
    let is_one = reply.starts_with(":1\r");
    let held = before.held.as_ref() == Some(&token);
    let event = match script {
        Some(Script::Acquire) => {
            let reply = match first {
                Some(':') => Reply::Granted(None),
                Some('$') => Reply::Granted(fences(lines.get(1).copied().unwrap_or_default())),
                _ if reply.starts_with("*2") => Reply::Busy,
                // The rank follows the time left and the value.
                _ if lines.get(4) == Some(&":-1") => Reply::Full,
                _ => Reply::Queued,
            };
            Some(Event::Asked { token: token.clone(), waits: !argument(8).is_empty(), reply })
        }
        Some(Script::AcquireAll) if first == Some(':') || after.held.as_ref() == Some(&token) => {
            let reply = Reply::Granted(None);
            Some(Event::Asked { token: token.clone(), waits: false, reply })
        }
        // The locks behind the first contended one are not looked at. One that is free is not taken
        // because of another one, though its dead waiters are gone.
        Some(Script::AcquireAll) if before != after && after.held.is_some() => {
            Some(Event::Asked { token: token.clone(), waits: false, reply: Reply::Busy })
        }
        Some(Script::Release) => {
            let keeps = held && argument(2) != "0";
            Some(Event::Released { token: token.clone(), held, keeps })
        }
        Some(Script::ReleaseUncontended) => {
            token = argument(1 + nth);
            let held = before.held.as_ref() == Some(&token);
            let was_done = before.queue.is_empty() || before.held.is_some() && !held;
            was_done.then(|| Event::Released { token: token.clone(), held, keeps: false })
        }
        Some(Script::Renew) => {
            let held = if keys == 1 { is_one } else { held };
            Some(Event::Renewed { token: token.clone(), held })
        }
        Some(Script::Repair) => Some(Event::Set { token: token.clone(), granted: is_one }),
        _ => None,
    };
    (Some(token), event)
}

fn fences(text: &str) -> Option<(u64, u64)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// A command, and what its script does, if it runs one.
type Call<'a> = (&'a Served, Option<Option<Script>>);
