//! What has to be true of every schedule. A violation begins with the name of its oracle.

use super::server::{FOREIGN, MS, S, Token, WINDOW};
use super::world::{Caller, Mode, Phase, Sleep, World};

impl World {
    pub(crate) fn bad(&mut self, what: String) {
        let ms = (self.now % (100_000 * S)) as f64 / 1e3;
        self.report.violations.push(format!("{what}, at {ms:.3} ms"));
    }

    /// The callers that believe that they have the lock.
    fn believers(&self) -> Vec<(usize, Token)> {
        let believes = |(id, caller): (usize, &Caller)| {
            let (guard, now) = (caller.held.as_ref()?, self.local(caller.setup.process));
            let believes = !guard.ended && !guard.tainted && now < guard.ends();
            believes.then_some((id, guard.tenure.token))
        };
        self.callers.iter().enumerate().filter_map(believes).collect()
    }

    /// At most one caller believes that it has the lock, and the server agrees.
    pub(crate) fn check_exclusion(&mut self, when: &str) {
        let holder = self.server.holder();
        match &self.believers()[..] {
            [(id, token)] if holder != Some(*token) => {
                let what = format!("belief: c{id} by {token:?}, the server has {holder:?}, {when}");
                self.bad(what);
            }
            [] | [_] => {}
            all => self.bad(format!("exclusion: {all:?}, {when}")),
        }
    }

    /// Each fence is larger than those of earlier bodies.
    pub(crate) fn check_fence(&mut self, id: usize) {
        let Some(guard) = &self.callers[id].held else { return };
        let (fence, tainted) = (guard.fence, guard.tainted);
        if self.callers[id].setup.fenced && fence.is_none() {
            self.bad(format!("fence: c{id} has none"));
        }
        if let Some(fence) = fence.filter(|_| !tainted) {
            let before = self.last_fence;
            self.last_fence = before.max(fence);
            if fence <= before {
                self.bad(format!("fence: {fence} of c{id} after {before}"));
            }
        }
    }

    /// A caller that is polled at once is overtaken by nobody who came later to the same queue,
    /// unless an offer was slept through, or the caller was sent away.
    pub(crate) fn check_order(&mut self, id: usize) {
        let caller = &self.callers[id];
        let process = &self.processes[caller.setup.process];
        let is_shuffled = process.widened || self.now < process.widened_at + 5 * MS;
        if is_shuffled || self.now < process.thawed + 500 * MS {
            return;
        }
        let is_overtaken = |other: &Caller| {
            other.setup.process == caller.setup.process
                && other.phase == Phase::Waits
                && other.setup.sleep == Sleep::Never
                && !other.has_slept
                && other.ticket < caller.ticket
                && !process.has_sent_away(other)
        };
        if let Some(other) = self.callers.iter().position(is_overtaken) {
            self.bad(format!("order: c{id} before c{other}"));
        }
    }

    /// A caller is told at once that the lock is busy: it is held, and not by a token that its
    /// process has retired, or callers wait before it who know that it is held.
    pub(crate) fn check_busy(&mut self, id: usize) {
        let nth = self.callers[id].setup.process;
        let holder = self.server.holder();
        let process = &self.processes[nth];
        if self.now < process.thawed + 10 * MS || self.epoch > 0 {
            return;
        }
        let is_held = holder.is_some_and(|token| !process.released.contains(&token));
        let mut asked = process.asked.iter();
        let is_known = asked.any(|asked| process.known.contains(&asked.token));
        let is_local = |caller: &Caller| {
            caller.setup.process == nth && caller.held.as_ref().is_some_and(|guard| !guard.ended)
        };
        if !is_held && !is_known && !self.callers.iter().any(is_local) {
            self.bad(format!("busy: c{id} of p{nth} was refused, and the lock is free"));
        }
    }

    /// A caller is refused by the answer of the store. The holder is no token whose release was in
    /// flight when the caller asked: the caller would wait for the answer to that.
    pub(crate) fn check_refused(&mut self, id: usize, holder: Option<Token>) {
        let (caller, mut holder) = (&self.callers[id], holder);
        holder.take_if(|token| self.processes[caller.setup.process].overtaken.contains(token));
        if holder.is_some_and(|token| caller.releasing.contains(&token)) {
            self.bad(format!("busy: c{id} was refused by a release of its own process"));
        }
    }

    /// A process asks for the lock only while a caller of it waits.
    pub(crate) fn check_places(&mut self) {
        for nth in 0..self.processes.len() {
            let process = &self.processes[nth];
            let waits = |caller: &Caller| {
                caller.setup.process == nth && matches!(caller.phase, Phase::Waits | Phase::Asks)
            };
            if process.asked.is_some() && !process.dead && !self.callers.iter().any(waits) {
                self.bad(format!("place: p{nth} asks, and nobody waits"));
            }
        }
    }

    /// A killed holder leaves the lock for its ttl, or for the confirm window if that is longer.
    pub(crate) fn check_killed(&mut self, nth: usize) {
        let Some((token, end)) = self.server.lock else { return };
        let holds = |caller: &&Caller| {
            let guard = caller.held.as_ref();
            caller.setup.process == nth
                && caller.phase == Phase::Body
                && guard.is_some_and(|guard| guard.tenure.token == token)
        };
        let Some(ttl) = self.callers.iter().find(holds).map(|caller| caller.setup.ttl) else {
            return;
        };
        let left = end.saturating_sub(self.now);
        if left > ttl.max(WINDOW) + 500 * MS + ttl / 50 {
            let (left, ttl) = (left / MS, ttl / MS);
            self.bad(format!("killed: a holder of ttl {ttl} ms leaves {left} ms"));
        }
    }

    /// How long the lock has no holder while a caller that is polled at once waits for it.
    pub(crate) fn note_idle(&mut self) {
        let holds = |caller: &Caller| caller.held.as_ref().is_some_and(|guard| !guard.ended);
        let waits = |caller: &Caller| {
            let process = &self.processes[caller.setup.process];
            let is_awake = !caller.has_slept && !process.dead && process.frozen <= self.now;
            caller.phase == Phase::Waits && is_awake
        };
        let is_idle = !self.callers.iter().any(holds) && self.callers.iter().any(waits);
        let is_reachable = self.paused <= self.now;
        let is_idle = is_idle && is_reachable && self.server.holder() != Some(FOREIGN);
        if is_idle {
            self.idle_since.get_or_insert(self.now);
        } else if let Some(since) = self.idle_since.take() {
            self.idle += self.now - since;
            self.check_idle(self.now - since);
        }
    }

    fn check_idle(&mut self, gap: u64) {
        let retries = if self.polls { 120 * MS } else { 0 };
        let bound = match self.mode {
            Mode::Calm => 8 * self.trip + 25 * MS,
            // Late answers of askers, and offers to sleepers only, of each process.
            Mode::Sleepy => self.processes.len() as u64 * (4_500 * MS + self.answer_time()),
            Mode::Faulty => 80 * S,
        };
        if gap > bound + retries {
            self.bad(format!("idle: for {} ms, bound {} ms", gap / MS, (bound + retries) / MS));
        }
    }

    /// At the end nothing is left, and those that sleep did not idle the lock for too long in all.
    pub(crate) fn check_end(&mut self) {
        if let Some(longest) = self.longest_idle.filter(|longest| self.idle > *longest) {
            let what = format!("sum: idle for {} ms, bound {} ms", self.idle / MS, longest / MS);
            self.bad(what);
        }
        for id in 0..self.callers.len() {
            let caller = &self.callers[id];
            let is_closed = self.processes[caller.setup.process].closed;
            let is_out =
                caller.phase == Phase::Out && (caller.call == 0 || caller.rounds == 0 || is_closed);
            if caller.phase != Phase::Done && !is_out {
                self.bad(format!("left: c{id} of p{} is {:?}", caller.setup.process, caller.phase));
            }
        }
        for nth in 0..self.processes.len() {
            if !self.processes[nth].dead && !self.processes[nth].queue.is_unused() {
                self.bad(format!("left: the queue of p{nth}"));
            }
        }
        self.server.now += 130 * S;
        let holder = self.server.holder().filter(|token| *token != FOREIGN);
        let is_left = holder.is_some() || self.server.is_waited_for();
        if is_left && !self.processes.iter().any(|process| process.dead) {
            self.bad(format!("left: a lock of {holder:?}, or a waiter at the server"));
        }
    }
}
