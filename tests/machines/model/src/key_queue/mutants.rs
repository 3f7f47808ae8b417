//! The mutants of the key queue.

use crate::mutants::{Mutant, QUEUE};

const fn mutant(
    name: &'static str,
    oracle: &'static str,
    old: &'static str,
    new: &'static str,
) -> Mutant {
    Mutant { file: QUEUE, name, oracle, old, new }
}

#[rustfmt::skip]
pub(crate) const MUTANTS: &[Mutant] = &[
    // Tenures.
    mutant("a lease that is over is passed on", "fence",
        "self.ends.since(now) >= least_lease(ask)", "true"),
    mutant("a lock is taken up without a check", "belief",
        "at < to && tenure.can_serve(ask, now) && tenure.has_survived(changed())", "at < to"),
    mutant("a lock of a replaced server is taken up", "belief",
        " && tenure.has_survived(changed())", " && (tenure.has_survived(changed()) || true)"),
    mutant("a lock outlives its holder on the store", "killed",
        "self.kept_until.since(now) <= ask.ttl().max(CONFIRM_WINDOW)", "true"),
    mutant("an unfenced tenure serves a fenced caller", "fence",
        "(!ask.is_fenced() || self.fences.is_some())", "true"),
    mutant("fences are not asked for", "spins",
        "self.fenced |= ask.is_fenced();", "self.fenced &= ask.is_fenced();"),
    // Offers.
    mutant("an offer never widens", "spins",
        "(Offered { tenure, since, to, .. }, Time) if is_due",
        "(Offered { tenure, since, to, .. }, Time) if is_due && to == 0"),
    mutant("an offer outlives its lease", "idle", "Some(tenure.ends.min(*widens))", "Some(tenure.ends.max(*widens))"),
    mutant("an offer outlives its use", "sum|idle", "now.after(patience.min(useful))", "now.after(patience.max(useful.min(patience)))"),
    mutant("those that sleep count as awake after a take-up", "sum",
        "(self.asleep, self.rests_until) = (at, now);", "(self.asleep, self.rests_until) = (0, now);"),
    mutant("no rest after an offer that nobody took", "sum",
        "(to, now.after(now.since(since) * REST))", "(to, now)"),
    mutant("those asleep are asked for again", "idle", "                self.asleep = at;\n                self.retire(tenure.token, None, &mut effects)", "                self.retire(tenure.token, None, &mut effects)"),
    mutant("a waiter that leaves moves those asleep", "order",
        "self.asleep -= usize::from(at < self.asleep);", "self.asleep -= usize::from(at < self.asleep && at > 1_000_000);"),
    // Waiters that are not polled.
    mutant("an unpolled asker is waited for", "spins",
        "(Asking { by, token, behind, .. }, Time) if is_due", "(Asking { by, token, behind, .. }, Time) if is_due && by == 0"),
    mutant("a late waiter gets no more time", "left",
        "2_u32.pow(next.missed % PATIENCE)", "2_u32.pow(next.missed.min(0))"),
    mutant("a waiter that wakes is not next", "left",
        "self.asleep = self.asleep.min(at);", ""),
    mutant("nobody asks for those that woke in a rest", "left",
        "State::Free if self.asleep < self.waiters.len() =>", "State::Free if self.asleep < self.waiters.len() && self.last == 0 =>"),
    // Callers that do not wait.
    mutant("busy before anybody has answered", "busy", "}\n                Arrival::Undecided", "}\n                Arrival::Busy"),
    mutant("busy because of a release", "busy",
        "matches!(self.state, Held(_) | Offered { .. } |", "matches!(self.state, Held(_) | State::Releasing { .. } | Offered { .. } |"),
    mutant("nothing is behind a release", "busy", "is_behind: was_behind }", "is_behind: false }"),
    mutant("a release of this process is another holder", "busy",
        "Requested { token, .. } if was_behind => Requested { token, contended: false },", ""),
    mutant("a caller is behind a release again", "spins|busy",
        "self.waiters.len() == before && !is_again", "self.waiters.len() == before && (!is_again || true)"),
    mutant("a release that was waited for is forgotten", "busy",
        "{ releasing(behind) }", "{ releasing(behind.filter(|_| false)) }"),
    mutant("a release is waited for after its answer", "left|idle",
        "State::Releasing { behind, .. } | State::Asking { behind, .. } => {", "State::Releasing { behind, .. } => {"),
    mutant("a release is forgotten because of a later one", "busy",
        "else { self.retire(token, behind, out) }", "else { self.retire(token, behind.filter(|_| false), out) }"),
    // Waiters.
    mutant("a caller comes before the others", "order",
        "self.waiters.push_back(Waiter { ticket, ask, missed, waker });",
        "self.waiters.push_back(Waiter { ticket, ask, missed, waker });\n            self.waiters.make_contiguous().sort_by_key(|waiter| (waiter.ticket / 3, std::cmp::Reverse(waiter.ticket % 3)));"),
    mutant("a late own answer ends the wait", "belief|exclusion|token",
        "if self.is_asking(ticket) {\n            effects.unused", "if self.is_asking(ticket) || self.find(ticket).is_ok() {\n            effects.unused"),
    mutant("a release in flight keeps waiters out", "left|idle",
        "State::Free | State::Releasing { .. } if waits", "State::Free if waits"),
    mutant("a waiter that is sent away is not woken", "left",
        "out.wake.extend(leave.filter_map(|waiter| waiter.waker.take()));", "drop(leave);"),
    mutant("those that need no fence are sent away", "left|idle|spins", "!for_fences || waiter.ask.is_fenced()", "!for_fences || waiter.ticket > 0"),
    // Tokens.
    mutant("one token for two turns", "token", 
        "match self.request(out) {\n            State::Free => State::Releasing",
        "match self.request(out) {\n            State::Requested { contended, .. } => {\n                out.ask = Some(token.clone());\n                State::Requested { token, contended }\n            }\n            State::Free => State::Releasing"),
    mutant("a place is kept without waiters", "place",
        "Leaves(_)) if self.waiters.is_empty()", "Leaves(_)) if self.waiters.len() > 1_000_000"),
    mutant("a tenure is not released", "left|idle",
        "out.release = Some(token.clone());", "out.release = Some(token.clone()).filter(|_| out.ask.is_some());"),
    mutant("a token that may be at the store is forgotten", "left|idle",
        "else { self.retire(token, behind, out) }\n    }\n\n    fn asks", "else { State::Free }\n    }\n\n    fn asks"),
    mutant("a shutdown keeps the request", "place",
        "Closes { .. }) => self.retire(token, None, out)", "Closes { .. }) => Requested { token, contended: true }"),
    mutant("a spent token is asked for again", "interleaving",
        "Spent(of)) if token == of => {\n                self.request(out)",
        "Spent(of)) if token == of => {\n                out.ask = Some(of);\n                Requested { token, contended: false }"),
];
