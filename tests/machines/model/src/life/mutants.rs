//! The mutants of a lock's life.

use crate::mutants::{LEASE, LIFE, Mutant, QUEUE};

const fn mutant(
    name: &'static str,
    oracle: &'static str,
    file: &'static str,
    old: &'static str,
    new: &'static str,
) -> Mutant {
    Mutant { file, name, oracle, old, new }
}

#[rustfmt::skip]
pub(crate) const MUTANTS: &[Mutant] = &[
    // What is passed on.
    mutant("a lock is passed on after a change of the server", "doubt", QUEUE,
        " && tenure.has_survived(changed) {", " {"),
    mutant("a lock is taken up after a change of the server", "doubt", QUEUE,
        " && tenure.has_survived(changed())", " && (tenure.has_survived(changed()) || true)"),
    mutant("a lock is passed on with a call in flight", "doubt", LIFE,
        "self.in_flight > 0 || ", ""),
    mutant("a lock is passed on after a call without an answer", "doubt", LIFE,
        "self.in_flight > 0 || self.unanswered_at >= Some(self.tenure.sent)", "self.in_flight > 0"),
    mutant("an answer to an earlier call ends the doubt", "doubt", LIFE,
        "self.tenure.sent = self.tenure.sent.max(sent);", "self.tenure.sent = now;"),
    mutant("a lock is passed on although its fence may be checked", "doubt", LIFE,
        " && !self.is_checked;", ";"),
    mutant("a lock whose key has to stay is passed on", "stays", LIFE,
        "let passes = !stays && ", "let passes = "),
    mutant("no lock is passed on", "waits", LIFE,
        "let passes = !stays && ", "let passes = stays && "),
    mutant("a call that has run late is counted from when it was sent", "killed", LIFE,
        "self.tenure.kept_until = self.tenure.kept_until.max(kept);", "let _ = kept;"),
    mutant("a call without an answer is not counted", "killed", LIFE,
        "self.tenure.kept_until.max(now.after(ttl));", "self.tenure.kept_until;"),
    mutant("the cleanup of a lock that was taken up takes the key to end now", "cleanup", LIFE,
        "then_some(tenure.kept_until)", "then_some(now)"),
    // How long the body may go on.
    mutant("a shorter extension shortens a lease", "shorter", LEASE,
        "limit.max(end_of(sent, ttl))", "end_of(sent, ttl)"),
    mutant("a shorter extension confirms the rest of a lease", "plan", LEASE,
        "if ttl >= self.ttl || is_whole {", "if ttl > Duration::ZERO || is_whole {"),
    mutant("a passed lease counts anew", "belief", LEASE,
        "lease.ends = lease.ends.min(ends);", ""),
    mutant("a renewal counts from the answer", "belief|longest", LIFE,
        "self.lease.renewed(sent, ttl, now)", "self.lease.renewed(now, ttl, now)"),
    mutant("a renewal that was refused counts", "told|belief", LIFE,
        "if !held {", "if !held && kind == Kind::Other {"),
    mutant("a renewal after the end brings the lease back", "told", LEASE,
        "self.remaining(now)?;", ""),
    mutant("a confirmation lengthens the lease", "longest", LIFE,
        "Kind::Confirmation => Duration::ZERO,", "Kind::Confirmation => self.terms.ttl,"),
    mutant("a hand-off is confirmed too late", "plan", LEASE,
        "self.unconfirmed.unwrap_or(self.ttl) / 3", "self.ttl / 3"),
    // Losses.
    mutant("a loss is told again and again", "once", LIFE, "self.stage = Stage::Lost;", ""),
    mutant("those that wait for a loss are not woken", "told", LIFE,
        "stays }));\n            effects.wakes = true;", "stays }));"),
    mutant("a lock that is lost is renewed", "quiet|told", LIFE,
        "(Event::Due, Ok(left)) => effects.send = Some(self.renew(now, left)),",
        "(Event::Due, left) => effects.send = Some(self.renew(now, left.unwrap_or_default())),"),
    mutant("what is left on several nodes is released at once", "nodes", LIFE,
        "let stays = cause == LossCause::Taken && self.terms.has_several_nodes;", "let stays = false;"),
    mutant("what is left of an expired lock stays", "nodes", LIFE,
        "let stays = cause == LossCause::Taken && ", "let stays = "),
    mutant("a lock that is lost is passed on", "once", LIFE,
        "if left.is_ok() {", "if left.is_ok() || left.is_err() {"),
    mutant("a life goes on after its end", "ends|once|quiet|told", LIFE, "self.stage = Stage::Over;", ""),
];
