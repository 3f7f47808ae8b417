//! The locks that callers hold: their leases, renewals and ends.

use std::time::Duration;

use super::engine::{Event as QueueEvent, Tenure};
use super::server::{Command, MS, Token};
use super::sys::time::Moment;
use super::world::{Event, Guard, Phase, Sender, World, lease_end, us};

impl World {
    /// The caller has the lock, and its body begins.
    pub(crate) fn take_up(&mut self, id: usize, mut tenure: Tenure<Token>) {
        self.trace(|| format!("c{id} has the lock by {tenure:?}"));
        self.check_order(id);
        let caller = &self.callers[id];
        let (nth, call, body) = (caller.setup.process, caller.call, caller.setup.body);
        let mut fence = None;
        if caller.setup.fenced
            && let Some(block) = tenure.fences
        {
            (fence, tenure.fences) = (Some(block.first()), block.rest());
        }
        let guard = Guard {
            ticket: caller.ticket,
            own_end: lease_end(self.local(nth), caller.setup.ttl),
            in_flight: 0,
            doubt: None,
            ended: false,
            fence,
            tainted: self.lost.contains(&tenure.token),
            tenure,
        };
        let caller = &mut self.callers[id];
        (caller.held, caller.phase) = (Some(guard), Phase::Body);
        self.processes[nth].widened = false;
        self.at(self.now + body, Event::BodyEnds(id, call));
        self.plan(id);
        self.check_fence(id);
        self.check_exclusion("as a body begins");
    }

    /// Plans the next renewal of a guard, and the end of its lease.
    fn plan(&mut self, id: usize) {
        let caller = &self.callers[id];
        let (nth, call) = (caller.setup.process, caller.call);
        let Some(ends) = caller.held.as_ref().map(Guard::ends) else { return };
        let now = self.local(nth);
        let time = self.real(nth, now.after(ends.since(now) / 3));
        self.at(time, Event::Renew(id, call));
        let time = self.real(nth, ends);
        self.at(time, Event::LeaseEnds(id, call));
    }

    /// The guard of a caller, if it is still that of this call.
    fn guard(&mut self, id: usize, call: u32) -> Option<&mut Guard> {
        let caller = &mut self.callers[id];
        if caller.call != call {
            return None;
        }
        caller.held.as_mut().filter(|guard| !guard.ended)
    }

    pub(crate) fn body_ends(&mut self, id: usize, call: u32) {
        let caller = &self.callers[id];
        if caller.call == call && matches!(caller.phase, Phase::Body | Phase::Lost) {
            self.end_guard(id);
            self.finish(id);
        }
    }

    pub(crate) fn end_guard(&mut self, id: usize) {
        let Some(guard) = self.callers[id].held.take().filter(|guard| !guard.ended) else {
            return;
        };
        let nth = self.callers[id].setup.process;
        let (now, process) = (self.local(nth), &self.processes[nth]);
        let is_suspect =
            guard.in_flight > 0 || guard.doubt.is_some_and(|doubt| doubt >= guard.tenure.sent);
        let changed = Some(process.changed);
        let stays = self.callers[id].setup.min_hold || process.closed;
        let passes = !is_suspect && now < guard.ends() && !stays;
        let turn = if passes { self.turn() } else { Duration::ZERO };
        self.on(nth, QueueEvent::Ends { by: guard.ticket, tenure: guard.tenure, turn, changed });
    }

    pub(crate) fn turn(&self) -> Duration {
        us((10 * self.trip).clamp(10 * MS, 100 * MS))
    }

    pub(crate) fn lease_ends(&mut self, id: usize, call: u32) {
        let now = self.local(self.callers[id].setup.process);
        if self.guard(id, call).is_some_and(|guard| now >= guard.ends()) {
            self.lose(id, call);
        }
    }

    /// The lock is lost. Its body learns of it when it ends.
    fn lose(&mut self, id: usize, call: u32) {
        let Some(guard) = self.guard(id, call) else { return };
        guard.ended = true;
        let (by, tenure) = (guard.ticket, guard.tenure.clone());
        self.callers[id].phase = Phase::Lost;
        let nth = self.callers[id].setup.process;
        self.on(nth, QueueEvent::Ends { by, tenure, turn: Duration::ZERO, changed: None });
    }

    pub(crate) fn renew(&mut self, id: usize, call: u32) {
        let caller = &self.callers[id];
        let (nth, ttl, renews) = (caller.setup.process, caller.setup.ttl, caller.setup.renews);
        let now = self.local(nth);
        let Some(guard) = self.guard(id, call) else { return };
        if guard.in_flight > 0 || !renews && guard.tenure.ends >= guard.own_end {
            return;
        }
        let left = guard.own_end.since(now).as_micros() as u64;
        let ttl = if renews { ttl } else { (left * 100).div_ceil(99) + 3 * MS };
        guard.in_flight += 1;
        if renews {
            guard.own_end = guard.own_end.max(lease_end(now, ttl));
        }
        guard.tenure.kept_until = guard.tenure.kept_until.max(now.after(us(ttl)));
        let token = guard.tenure.token;
        self.send(nth, Command::Renew { token, ttl }, Sender::Guard(id, call));
    }

    pub(crate) fn renewed(&mut self, id: usize, call: u32, is_held: bool, sent: Moment, ttl: u64) {
        let now = self.local(self.callers[id].setup.process);
        let Some(guard) = self.guard(id, call) else { return };
        if is_held && guard.tenure.sent > sent {
            guard.in_flight = guard.in_flight.saturating_sub(1);
        } else if is_held && now < guard.tenure.ends {
            guard.in_flight = guard.in_flight.saturating_sub(1);
            let tenure = &mut guard.tenure;
            tenure.ends = tenure.ends.max(lease_end(sent, ttl));
            tenure.kept_until = tenure.kept_until.max(now.after(us(ttl)));
            tenure.sent = tenure.sent.max(sent);
            self.plan(id);
        } else {
            self.lose(id, call);
        }
    }

    /// A renewal got no answer in time. The answer may still come, and counts then.
    pub(crate) fn unanswered(&mut self, id: usize, call: u32) {
        let now = self.local(self.callers[id].setup.process);
        if let Some(guard) = self.guard(id, call) {
            guard.doubt = Some(now);
            guard.in_flight = guard.in_flight.saturating_sub(1);
            self.renew(id, call);
        }
    }
}
