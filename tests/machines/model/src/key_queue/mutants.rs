//! Mutants: copies of the key queue with one line changed, each of which has to be found by the
//! model.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

const QUEUE: &str = "lockmacro-runtime/src/engine/queue/key_queue.rs";

/// What the copy needs of the workspace.
const COPIED: [&str; 8] = [
    QUEUE,
    "Cargo.lock",
    "README.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "tests/machines/model/Cargo.toml",
    "tests/machines/model/src",
    "tests/machines/model/tests",
];

/// One changed line.
struct Mutant {
    name: &'static str,
    /// The oracle that should fail, or one of several by `|`.
    oracle: &'static str,
    old: &'static str,
    new: &'static str,
}

const fn mutant(
    name: &'static str,
    oracle: &'static str,
    old: &'static str,
    new: &'static str,
) -> Mutant {
    Mutant { name, oracle, old, new }
}

#[rustfmt::skip]
const MUTANTS: &[Mutant] = &[
    // Tenures.
    mutant("a lease that is over is passed on", "fence",
        "self.ends.since(now) >= least_lease(ask)", "true"),
    mutant("a lock is taken up without a check", "belief",
        "at < to && tenure.can_serve(ask, now) && is_sound(&tenure)", "at < to"),
    mutant("a lock of a replaced server is taken up", "belief",
        " && is_sound(&tenure)", " && (is_sound(&tenure) || true)"),
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
    mutant("one token for two turns", "token", "first.ask.another()", "first.ask.own()"),
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

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The mutants whose text is not found exactly once.
pub fn out_of_place() -> io::Result<Vec<&'static str>> {
    let queue = fs::read_to_string(root().join(QUEUE))?;
    let stale = MUTANTS.iter().filter(|mutant| queue.matches(mutant.old).count() != 1);
    Ok(stale.map(|mutant| mutant.name).collect())
}

/// Builds each mutant in a copy of the sources, and prints by which oracle it is found. Returns
/// whether each was found by the oracle that should fail.
pub fn try_all(only: Option<&str>) -> io::Result<bool> {
    let all = root().canonicalize()?.join("target/mutants/key_queue");
    let (copy, target) = (all.join("sources"), all.join("build"));
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    for path in COPIED {
        let to = copy.join(path);
        to.parent().map_or(Ok(()), fs::create_dir_all)?;
        let copied = Command::new("cp").arg("-R").args([&root().join(path), &to]).status()?;
        if !copied.success() {
            return Err(io::Error::other(format!("{path} cannot be copied")));
        }
    }
    let workspace = fs::read_to_string(root().join("Cargo.toml"))?;
    fs::write(copy.join("Cargo.toml"), with_one_member(&workspace))?;
    let queue = fs::read_to_string(copy.join(QUEUE))?;
    println!("| mutant | should fail | failed |\n|---|---|---|");
    let (mut tried, mut found) = (0, 0);
    for mutant in MUTANTS.iter().filter(|one| only.is_none_or(|only| one.name.contains(only))) {
        fs::write(copy.join(QUEUE), queue.replace(mutant.old, mutant.new))?;
        let output = Command::new(env!("CARGO"))
            .args(["run", "--quiet", "--package", "lockmacro-model-tests", "--", "--first"])
            .current_dir(&copy)
            .env("CARGO_TARGET_DIR", &target)
            .env("RUSTFLAGS", "-Awarnings")
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let failed = match text.split_once(": ") {
            Some((oracle, _)) => oracle,
            None if output.status.success() => "none",
            None => "nothing: it panics, or does not build",
        };
        println!("| {} | {} | {failed} |", mutant.name, mutant.oracle.replace('|', " or "));
        tried += 1;
        found += usize::from(mutant.oracle.split('|').any(|oracle| oracle == failed));
    }
    println!("\n{found} of {tried} mutants were found by the oracle that should fail.");
    Ok(found == tried)
}

/// The workspace with this package alone.
fn with_one_member(text: &str) -> String {
    let parts = text.split_once("members = [").zip(text.split_once("[workspace.package]"));
    match parts {
        Some(((before, _), (_, after))) => {
            format!("{before}members = [\"tests/machines/model\"]\n\n[workspace.package]{after}")
        }
        None => text.to_owned(),
    }
}
