//! The owner of a key queue: carries out effects, asks the store for the queue, and releases.

use super::engine::{Effects, Event as QueueEvent, Tenure};
use super::server::{Command, MS, Push, Reply, S, Token};
use super::sys::time::Moment;
use super::world::{Asked, Event, Mode, Phase, Sender, World, lease_end, us};

impl World {
    pub(crate) fn apply(&mut self, nth: usize, mut effects: Effects<Token, usize>) {
        if let Some(token) = effects.release.take_if(|_| self.polls) {
            // Nodes without a common queue have no order to keep.
            self.retire(nth, token);
        }
        if let Some(token) = effects.ask {
            let process = &mut self.processes[nth];
            process.overtaken.extend(&process.releasing);
            process.asked = Some(Asked { token, sample: None, last: 0 });
            self.ask(nth);
        }
        if let Some(token) = effects.release {
            self.retire(nth, token);
        }
        effects.wake.into_iter().for_each(|id| self.wake(id));
        self.watch(nth);
    }

    pub(crate) fn on(&mut self, nth: usize, event: QueueEvent<Token>) {
        let now = self.local(nth);
        let effects = self.processes[nth].queue.on(event, now);
        self.after(nth, effects);
    }

    /// Carries out the effects of an event.
    pub(crate) fn after(&mut self, nth: usize, effects: Effects<Token, usize>) {
        self.apply(nth, effects);
        // Undecided callers look again.
        for id in 0..self.callers.len() {
            let caller = &self.callers[id];
            if caller.phase == Phase::Undecided && caller.setup.process == nth {
                self.wake(id);
            }
        }
    }

    fn watch(&mut self, nth: usize) {
        if let Some(due) = self.processes[nth].queue.due() {
            let time = self.real(nth, due).max(self.now);
            let watched = &mut self.processes[nth].watched;
            if watched.is_none_or(|watched| time < watched) {
                *watched = Some(time);
                self.at(time, Event::Watch(nth));
            }
        }
    }

    pub(crate) fn watched(&mut self, nth: usize) {
        let (now, real) = (self.local(nth), self.now);
        let process = &mut self.processes[nth];
        if process.watched.take_if(|time| *time <= real).is_none() {
            return;
        }
        if process.queue.due().is_none_or(|due| due > now) {
            return self.watch(nth);
        }
        if process.queue.offered().is_some() {
            (process.widened, process.widened_at) = (true, real);
        }
        self.on(nth, QueueEvent::Time);
    }

    pub(crate) fn is_asked(&self, nth: usize, token: Token) -> bool {
        self.processes[nth].asked.as_ref().is_some_and(|asked| asked.token == token)
    }

    pub(crate) fn ask(&mut self, nth: usize) {
        let process = &self.processes[nth];
        let Some(Asked { token, .. }) = process.asked else { return };
        let (ttl, fenced, waits) = (token.window, process.queue.is_fenced(), !self.polls);
        let command = Command::Acquire { token, ttl, fenced, waits };
        let id = self.send(nth, command, Sender::Queue(token));
        if let Some(asked) = &mut self.processes[nth].asked {
            asked.last = id;
        }
    }

    /// Releases a token until that is answered, and once more when no copy of a request can be in
    /// flight any more.
    fn retire(&mut self, nth: usize, token: Token) {
        let process = &mut self.processes[nth];
        process.live.remove(&token);
        process.releasing.insert(token);
        process.asked.take_if(|asked| asked.token == token);
        let mut requests = process.requests.values();
        let may_arrive = self.mode == Mode::Faulty
            || requests.any(|(_, command, _)| command.asks_with() == Some(token));
        self.send(nth, Command::Release { token }, Sender::Cleanup(token));
        if may_arrive {
            self.at(self.now + 20 * MS, Event::ReleaseAgain(nth, token));
            self.at(self.now + 6 * S, Event::ReleaseAgain(nth, token));
        }
    }

    pub(crate) fn shut_down(&mut self, nth: usize) {
        self.processes[nth].closed = true;
        self.on(nth, QueueEvent::Closes { for_fences: false });
        for id in 0..self.callers.len() {
            if self.callers[id].setup.process == nth {
                self.wake(id);
            }
        }
    }

    /// The waiters that need a fence are sent away.
    pub(crate) fn send_away(&mut self, nth: usize) {
        self.processes[nth].sent_away = self.processes[nth].queue.last();
        self.on(nth, QueueEvent::Closes { for_fences: true });
    }

    /// A process learns that the server was replaced.
    pub(crate) fn notice(&mut self, nth: usize, epoch: u32) {
        let now = self.local(nth);
        let process = &mut self.processes[nth];
        (process.epoch, process.changed) = (epoch, now);
        // A hand-off counts by the clock of its own server only.
        process.asked.iter_mut().for_each(|asked| asked.sample = None);
        // Every lock is confirmed.
        for id in 0..self.callers.len() {
            if self.callers[id].setup.process == nth {
                self.renew(id, self.callers[id].call);
            }
        }
        self.ask(nth);
    }

    pub(crate) fn answered(&mut self, nth: usize, id: u64, reply: Reply) {
        let Some((sent, command, sender)) = self.processes[nth].requests.remove(&id) else {
            return;
        };
        match (sender, command) {
            (Sender::Caller(caller, call), _) => self.told(caller, call, id, Ok((reply, sent))),
            (Sender::Queue(token), _) => self.queue_answered(nth, id, token, sent, reply),
            (Sender::Cleanup(token), _) => {
                self.processes[nth].releasing.remove(&token);
                self.processes[nth].queue.released(&token);
                self.after(nth, Effects::default());
            }
            (Sender::Guard(caller, call), Command::Renew { ttl, .. }) => {
                self.renewed(caller, call, matches!(reply, Reply::Yes), sent, ttl);
            }
            (Sender::Guard(..), _) => {}
        }
    }

    /// The caller's own request was answered, or is given up.
    fn told(&mut self, id: usize, call: u32, request: u64, answer: Result<(Reply, Moment), ()>) {
        let caller = &mut self.callers[id];
        let is_current = caller.call == call && caller.last_request == request;
        if is_current && caller.phase == Phase::Asks && caller.answer.is_none() {
            caller.answer = Some(answer);
            self.wake(id);
        }
    }

    fn queue_answered(&mut self, nth: usize, id: u64, token: Token, sent: Moment, reply: Reply) {
        let Some(asked) = &mut self.processes[nth].asked else { return };
        if asked.token != token || asked.last != id {
            return;
        }
        let pause = match reply {
            Reply::Granted { at, fences, ttl } => {
                self.note_grant(token, at);
                let tenure = self.tenure(nth, token, sent, lease_end(sent, ttl), ttl);
                return self.granted(nth, Tenure { fences, ..tenure });
            }
            Reply::Queued { now, left } => {
                if asked.sample.is_none_or(|(before, _)| sent >= before) {
                    asked.sample = Some((sent, now));
                }
                self.rng.u64(1_600..2_400).min(left / MS + 2) * MS
            }
            _ => self.rng.u64(1..100) * MS,
        };
        self.at(self.now + pause, Event::Tick(nth, token));
        self.processes[nth].known.insert(token);
        self.on(nth, QueueEvent::Answered { token, contended: true });
    }

    /// A grant of a server that was replaced since is none.
    pub(crate) fn note_grant(&mut self, token: Token, at: u64) {
        match at < self.replaced {
            true => self.lost.insert(token),
            false => self.lost.remove(&token),
        };
    }

    pub(crate) fn tenure(
        &self,
        nth: usize,
        token: Token,
        sent: Moment,
        ends: Moment,
        ttl: u64,
    ) -> Tenure<Token> {
        let began = self.local(nth);
        let longest = self.processes[nth].longest.get(&token).copied().unwrap_or_default();
        let kept_until = began.after(us(longest.max(ttl)));
        Tenure { token, began, sent, ends, kept_until, fences: None }
    }

    fn granted(&mut self, nth: usize, tenure: Tenure<Token>) {
        self.processes[nth].asked = None;
        self.processes[nth].live.insert(tenure.token);
        self.on(nth, QueueEvent::Granted(tenure));
    }

    pub(crate) fn pushed(&mut self, push: Push) {
        let Push { token, fences, at, ttl } = push;
        let nth = token.process;
        let now = self.local(nth);
        let process = &self.processes[nth];
        if process.live.contains(&token) {
            return;
        }
        let Some(asked) = process.asked.as_ref().filter(|asked| asked.token == token) else {
            // Nobody asks with the token any more.
            self.send(nth, Command::Release { token }, Sender::Cleanup(token));
            return;
        };
        // Counted by the server's clock from an answer of before.
        let sample = asked.sample.filter(|(_, server)| *server <= at);
        let sample = sample.map(|(sent, server)| {
            let by_sample = sent.after(us((at - server + ttl) * 99 / 100 - 2 * MS));
            (sent, by_sample.min(now.after(us(ttl * 99 / 100 - 2 * MS))))
        });
        match sample.filter(|(_, ends)| *ends > now.after(us(20 * MS))) {
            Some((sent, ends)) => {
                self.note_grant(token, at);
                let tenure = self.tenure(nth, token, sent, ends, ttl);
                self.granted(nth, Tenure { fences, ..tenure });
            }
            None => self.ask(nth),
        }
    }

    pub(crate) fn timed_out(&mut self, nth: usize, id: u64) {
        let Some((_, command, sender)) = self.processes[nth].requests.get(&id).copied() else {
            return;
        };
        match sender {
            Sender::Caller(caller, call) => self.told(caller, call, id, Err(())),
            Sender::Queue(token) => {
                let asked = self.processes[nth].asked.as_ref();
                if asked.is_some_and(|asked| asked.token == token && asked.last == id) {
                    self.on(nth, QueueEvent::Answered { token, contended: false });
                    self.ask(nth);
                }
            }
            Sender::Cleanup(token) => {
                self.processes[nth].requests.remove(&id);
                self.send(nth, command, Sender::Cleanup(token));
            }
            Sender::Guard(caller, call) => self.unanswered(caller, call),
        }
    }
}
