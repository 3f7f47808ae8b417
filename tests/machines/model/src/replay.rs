//! Replays a trace into the model: an event that the model does not allow is an error.

use crate::event::{Event, Reply};
use crate::server::{Answer, Block, Rules, Server};
use crate::variant::Variant;

/// The times do not count: a trace says when a lease ends.
const RULES: Rules = Rules {
    ttl: u8::MAX,
    confirm_window: u8::MAX,
    lease: u8::MAX,
    block: 1,
    variant: Variant::None,
};

/// The model's server after the events so far.
#[derive(Debug, Clone, Default)]
pub struct Replay {
    server: Server<String>,
    /// A grant that the next event must tell.
    handed_off: Option<String>,
    gives_up: bool,
    /// The last fence that the server gave.
    last_fence: u64,
    /// The token of the body that runs, and the fence of the last one.
    body: Option<String>,
    largest: u64,
}

type Allowed = Result<(), String>;

impl Replay {
    /// Replays a whole trace; an error names the first event that the model does not allow.
    pub fn all<'a>(events: impl IntoIterator<Item = &'a Event>) -> Allowed {
        let mut replay = Replay::default();
        for (nth, event) in events.into_iter().enumerate() {
            replay.event(event).map_err(|why| format!("event {}, {event:?}: {why}", nth + 1))?;
        }
        Ok(())
    }

    /// Replays an event. The error says why the model does not allow it.
    pub fn event(&mut self, event: &Event) -> Allowed {
        if let Some(token) = &self.handed_off
            && !matches!(event, Event::HandedOff { token: told, .. } if told == token)
        {
            return Err(format!("the lock was handed off to {token}"));
        }
        match event {
            Event::Asked { token, waits, reply } => self.asked(token, *waits, *reply),
            Event::Set { token, granted } => {
                let is_free = self.server.held.is_none();
                if is_free {
                    self.server.held = Some((token.clone(), RULES.ttl));
                }
                ensure(*granted == is_free, "it is held, or it is not")
            }
            Event::HandedOff { token, fences } => {
                let handed_off = self.handed_off.take();
                ensure(handed_off.as_ref() == Some(token), "nothing was handed off")?;
                self.gives(*fences)
            }
            Event::Released { token, held, keeps } => self.released(token, *held, *keeps),
            Event::Renewed { token, held } => {
                let renewed = self.server.renew(&RULES, token);
                ensure(renewed == *held, "it holds the lock, or it does not")
            }
            Event::Left { token } => {
                ensure(self.server.waits(token), "it does not wait")?;
                self.server.leave(token);
                Ok(())
            }
            Event::TooManyDead => {
                self.gives_up = true;
                Ok(())
            }
            Event::Freed => {
                ensure(self.server.held.is_some(), "it is free")?;
                self.server.expire();
                Ok(())
            }
            Event::Foreign => {
                ensure(self.server.held.is_none(), "it is held")?;
                self.hold_elsewhere();
                Ok(())
            }
            Event::Counter { last } => {
                self.last_fence = *last;
                Ok(())
            }
            Event::Began { token, fence } => self.began(token, *fence),
            Event::Ended { token } => {
                ensure(self.body.as_ref() == Some(token), "its body does not run")?;
                self.body = None;
                Ok(())
            }
            Event::Seen { held, queue } => self.seen(held.as_deref(), queue),
        }
    }

    fn asked(&mut self, token: &String, waits: bool, reply: Reply) -> Allowed {
        let gives_up = std::mem::take(&mut self.gives_up);
        if reply == Reply::Full {
            let is_new = waits && !self.server.waits(token) && !self.server.is_held_by(token);
            return ensure(is_new, "it holds the lock, or waits");
        }
        let queue = if gives_up { std::mem::take(&mut self.server.queue) } else { Vec::new() };
        let is_free = self.server.held.is_none();
        if gives_up && is_free {
            // As if another one held the lock.
            self.hold_elsewhere();
        }
        let (answer, handed_off) = self.server.ask(&RULES, token, waits);
        if gives_up {
            let new = std::mem::replace(&mut self.server.queue, queue);
            self.server.queue.extend(new);
            if is_free {
                self.server.expire();
            }
        }
        self.handed_off = handed_off.map(|(token, _)| token);
        match (answer, reply) {
            (Answer::Granted(_), Reply::Granted(fences)) => self.gives(fences),
            (Answer::Queued, Reply::Queued) | (Answer::Busy, Reply::Busy) => Ok(()),
            (answer, _) => Err(format!("the answer is {answer:?}")),
        }
    }

    fn released(&mut self, token: &String, held: bool, keeps: bool) -> Allowed {
        let gives_up = std::mem::take(&mut self.gives_up);
        let holds = self.server.is_held_by(token);
        ensure(holds == held, "it holds the lock, or it does not")?;
        if holds && keeps {
            self.hold_elsewhere();
        } else if holds && gives_up {
            self.server.expire();
        } else if gives_up && self.server.held.is_none() {
            self.server.leave(token);
        } else {
            let (_, handed_off) = self.server.release(&RULES, token);
            self.handed_off = handed_off.map(|(token, _)| token);
        }
        Ok(())
    }

    /// The lock is held by a value that is no token.
    fn hold_elsewhere(&mut self) {
        self.server.held = Some((String::new(), RULES.ttl));
    }

    fn gives(&mut self, fences: Option<Block>) -> Allowed {
        if let Some((first, last)) = fences {
            let before = self.last_fence;
            ensure(first > before && last >= first, &format!("fences after {before}"))?;
            self.last_fence = last;
        }
        Ok(())
    }

    fn began(&mut self, token: &String, fence: Option<u64>) -> Allowed {
        ensure(self.body.is_none(), "another body runs")?;
        ensure(self.server.is_held_by(token), "it does not hold the lock")?;
        if let Some(fence) = fence {
            ensure(
                fence > self.largest,
                &format!("the fence of an earlier body is {}", self.largest),
            )?;
            self.largest = fence;
        }
        self.body = Some(token.clone());
        Ok(())
    }

    fn seen(&self, held: Option<&str>, queue: &[String]) -> Allowed {
        let expected = self.server.held.as_ref().map(|(held, _)| held.as_str());
        // Another program's value is any.
        let same = held == expected || held.is_some() && expected == Some("");
        ensure(same, &format!("it is held by {expected:?}"))?;
        let waiting = self.server.queue.iter().map(|(token, _)| token);
        ensure(waiting.eq(queue), &format!("in the queue are {:?}", self.server.queue))
    }
}

fn ensure(holds: bool, why: &str) -> Allowed {
    if holds { Ok(()) } else { Err(why.to_owned()) }
}
