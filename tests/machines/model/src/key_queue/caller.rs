//! The callers: how each asks, waits and is polled.

use super::engine::{Arrival, Event as QueueEvent, Found, TAKE_UP, Tenure};
use super::server::{Command, MS, Reply, S, Token, Wish};
use super::sys::time::Moment;
use super::world::{Caller, Event, Mode, Phase, Sender, Sleep, World, lease_end, us};

impl Caller {
    fn waits(&self) -> bool {
        self.setup.wait.is_some()
    }
}

impl World {
    pub(crate) fn wake(&mut self, id: usize) {
        let sleep = self.callers[id].setup.sleep;
        let delay = match sleep {
            Sleep::Late(late) => late,
            Sleep::Forgotten => return,
            Sleep::Never if self.chance(20) => self.rng.u64(1..2 * MS),
            Sleep::Never => self.rng.u64(1..=60),
        };
        let (now, time) = (self.now, self.now + delay);
        let caller = &mut self.callers[id];
        if caller.poll_at.is_none_or(|at| at > time || at < now) {
            caller.poll_at = Some(time);
            self.at(time, Event::Poll(id));
        }
    }

    pub(crate) fn begin(&mut self, id: usize) {
        let (now, answer_time) = (self.now, self.answer_time());
        let caller = &mut self.callers[id];
        if caller.phase != Phase::Out || caller.rounds == 0 {
            return;
        }
        caller.rounds -= 1;
        caller.call += 1;
        (caller.is_again, caller.asked) = (false, 0);
        caller.deadline = now + caller.setup.wait.unwrap_or(4 * answer_time);
        if caller.setup.wait.is_some_and(|wait| wait < 10_000 * S) {
            let deadline = caller.deadline;
            self.at(deadline, Event::Poll(id));
        }
        self.poll(id);
    }

    pub(crate) fn finish(&mut self, id: usize) {
        let caller = &mut self.callers[id];
        let again = caller.rounds > 0 && !self.processes[caller.setup.process].closed;
        caller.phase = if again { Phase::Out } else { Phase::Done };
        (caller.answer, caller.ticket) = (None, 0);
        if again {
            let pause = self.rng.u64(0..=50);
            self.at(self.now + pause, Event::Arrive(id));
        }
    }

    pub(crate) fn polled(&mut self, id: usize) {
        let now = self.now;
        let caller = &mut self.callers[id];
        caller.poll_at.take_if(|at| *at <= now);
        // Not between two calls.
        if caller.phase != Phase::Out || caller.ticket != 0 {
            self.poll(id);
        }
    }

    pub(crate) fn dropped(&mut self, id: usize) {
        match self.callers[id].phase {
            Phase::Done => return,
            Phase::Body | Phase::Lost => self.end_guard(id),
            Phase::Asks | Phase::Waits => self.leave(id),
            Phase::Out | Phase::Undecided => {}
        }
        self.callers[id].rounds = 0;
        self.finish(id);
    }

    fn poll(&mut self, id: usize) {
        for _ in 0..50 {
            let caller = &self.callers[id];
            let closed = self.processes[caller.setup.process].closed;
            let is_over = self.now >= caller.deadline && caller.waits();
            let goes_on = match caller.phase {
                Phase::Body | Phase::Lost | Phase::Done => false,
                Phase::Out if closed => {
                    self.finish(id);
                    false
                }
                Phase::Out | Phase::Undecided => self.arrive(id),
                Phase::Asks => self.poll_asker(id),
                Phase::Waits => {
                    let goes_on = self.poll_waiter(id);
                    if self.callers[id].phase == Phase::Waits && (is_over || closed) {
                        self.leave(id);
                        self.finish(id);
                    }
                    goes_on
                }
            };
            if !goes_on {
                return;
            }
        }
        self.bad(format!("spins: c{id}"));
    }

    /// Returns whether to go on.
    fn arrive(&mut self, id: usize) -> bool {
        let caller = &self.callers[id];
        let (nth, ttl, fenced) = (caller.setup.process, caller.setup.ttl, caller.setup.fenced);
        let (waits, is_again, asked) = (caller.waits(), caller.is_again, caller.asked);
        if !waits && is_again && self.now >= caller.deadline {
            // No answer in time: unavailable.
            self.finish(id);
            return false;
        }
        let token = Token::new(nth, ttl);
        let wish = Wish { token, ttl, fenced, waits };
        // Longer than its own request takes, so that a caller that is polled acts first. One that
        // was not polled in time has more of it for its next request.
        let longest = (us(self.answer_time()) + TAKE_UP) * 4_u32.pow(asked.min(4));
        let until = self.local(nth).after(longest);
        let (arrival, effects) = self.processes[nth].queue.arrive(wish, token, is_again, until);
        self.apply(nth, effects);
        let caller = &mut self.callers[id];
        (caller.token, caller.tries, caller.is_again) = (token, 0, true);
        match arrival {
            Arrival::Asks { by: ticket, is_behind } => {
                (caller.ticket, caller.is_behind) = (ticket, is_behind);
                caller.phase = Phase::Asks;
                caller.asked += 1;
                self.ask_alone(id);
                true
            }
            Arrival::Waits(ticket) => {
                (caller.ticket, caller.phase) = (ticket, Phase::Waits);
                true
            }
            Arrival::Busy => {
                self.check_busy(id);
                self.finish(id);
                false
            }
            Arrival::Undecided => {
                caller.phase = Phase::Undecided;
                let deadline = caller.deadline;
                self.at(deadline, Event::Poll(id));
                false
            }
        }
    }

    /// The caller's own request.
    fn ask_alone(&mut self, id: usize) {
        let caller = &mut self.callers[id];
        caller.answer = None;
        caller.releasing.clone_from(&self.processes[caller.setup.process].releasing);
        let (token, ttl, fenced) = (caller.token, caller.setup.ttl, caller.setup.fenced);
        let command = match fenced || caller.tries > 0 {
            true => Command::Acquire { token, ttl, fenced, waits: false },
            false => Command::Set { token, ttl },
        };
        let (nth, sender) = (caller.setup.process, Sender::Caller(id, caller.call));
        self.callers[id].last_request = self.send(nth, command, sender);
    }

    fn poll_asker(&mut self, id: usize) -> bool {
        let caller = &self.callers[id];
        let (nth, ticket, token) = (caller.setup.process, caller.ticket, caller.token);
        let waits = caller.waits();
        // After this the caller waits, or arrives again.
        let next = if waits { Phase::Waits } else { Phase::Out };
        let answer = self.take_answer(id);
        if !self.processes[nth].queue.is_asking(ticket) && !is_granted(&answer) {
            // The queue has gone on.
            self.callers[id].phase = next;
            return true;
        }
        if self.processes[nth].closed {
            self.leave(id);
            self.finish(id);
            return false;
        }
        match answer {
            Some(Ok((Reply::Granted { at, fences, ttl }, sent))) => {
                let effects = self.processes[nth].queue.granted_to(ticket);
                self.after(nth, effects);
                if self.processes[nth].queue.holder() != Some(ticket) {
                    self.callers[id].phase = next;
                    return true;
                }
                self.note_grant(token, at);
                self.processes[nth].live.insert(token);
                let tenure = self.tenure(nth, token, sent, lease_end(sent, ttl), ttl);
                self.take_up(id, Tenure { fences, ..tenure });
                false
            }
            Some(Ok((reply, _))) => {
                let caller = &self.callers[id];
                let is_clean = caller.tries == 0 && !self.resent.contains(&token);
                let arrives = waits || caller.is_behind;
                let holder = if let Reply::Busy(holder) = reply { Some(holder) } else { None };
                let is_own = holder.is_some_and(|token| caller.releasing.contains(&token));
                // The queue forgets a release if another one overtakes it, after lost messages.
                let is_sure = !is_own || self.mode == Mode::Faulty;
                if is_clean && is_sure {
                    self.processes[nth].known.insert(token);
                }
                self.on(nth, QueueEvent::NotGrantedTo { ticket, contended: is_clean });
                if arrives {
                    self.callers[id].phase = next;
                    return true;
                }
                self.check_refused(id, holder);
                self.finish(id);
                false
            }
            Some(Err(())) if waits => {
                self.on(nth, QueueEvent::NotGrantedTo { ticket, contended: false });
                self.callers[id].phase = next;
                true
            }
            Some(Err(())) if self.callers[id].tries < 3 => {
                self.callers[id].tries += 1;
                self.ask_alone(id);
                false
            }
            Some(Err(())) => {
                self.leave(id);
                self.finish(id);
                false
            }
            None => false,
        }
    }

    /// The answer to the caller's own request. A grant whose lease is over is none.
    fn take_answer(&mut self, id: usize) -> Option<Result<(Reply, Moment), ()>> {
        let answer = self.callers[id].answer.take()?;
        let now = self.local(self.callers[id].setup.process);
        match answer {
            Ok((Reply::Granted { ttl, .. }, sent)) if now >= lease_end(sent, ttl) => Some(Err(())),
            answer => Some(answer),
        }
    }

    /// Returns whether the caller has to arrive again.
    fn poll_waiter(&mut self, id: usize) -> bool {
        let (nth, ticket) = (self.callers[id].setup.process, self.callers[id].ticket);
        let now = self.local(nth);
        let process = &mut self.processes[nth];
        let changed = process.changed;
        let waker = |last: Option<&usize>| (last != Some(&id)).then_some(id);
        let (found, effects) = process.queue.poll(ticket, waker, || Some(changed), now);
        self.apply(nth, effects);
        let process = &self.processes[nth];
        match found {
            Found::Nothing => false,
            Found::Gone => {
                if process.closed || process.has_sent_away(&self.callers[id]) {
                    self.finish(id);
                    return false;
                }
                self.callers[id].phase = Phase::Out;
                true
            }
            Found::Lock(tenure) => {
                if self.lost.contains(&tenure.token) && process.epoch == self.epoch {
                    self.bad("belief: a lock of a replaced server was taken up".to_owned());
                }
                self.take_up(id, tenure);
                false
            }
        }
    }

    pub(crate) fn leave(&mut self, id: usize) {
        let caller = &self.callers[id];
        self.on(caller.setup.process, QueueEvent::Leaves(caller.ticket));
    }
}

fn is_granted(answer: &Option<Result<(Reply, Moment), ()>>) -> bool {
    matches!(answer, Some(Ok((Reply::Granted { .. }, _))))
}
