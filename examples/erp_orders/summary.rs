//! The reports that are printed during the run, and the checks at its end.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use crate::orders::{Batch, Request, Share, Task};
use crate::record::Findings;
use crate::report::{Outcome, Report};

#[derive(Debug)]
pub struct Summary<'a> {
    batch: &'a Batch,
    requests: HashMap<(String, u64), &'a Request>,
    /// How each request ended, in the order of their ends.
    ends: Vec<(String, u64, Outcome)>,
    busy_answers: usize,
    /// With `--lose`, assigned goods are booked out of stock.
    lose: bool,
    bodies: u32,
    beside_lost: u32,
    faults: Vec<String>,
}

impl<'a> Summary<'a> {
    pub fn new(batch: &'a Batch, shares: &'a [Share], lose: bool) -> Self {
        let requests: HashMap<_, _> = shares
            .iter()
            .flat_map(|share| {
                share.requests.iter().map(|request| ((share.desk.clone(), request.line), request))
            })
            .collect();
        let summary = Self {
            batch,
            requests,
            ends: Vec::new(),
            busy_answers: 0,
            lose,
            bodies: 0,
            beside_lost: 0,
            faults: Vec::new(),
        };
        for line in &batch.unreadable {
            say(line);
        }
        summary
    }

    /// Prints and keeps one report.
    pub fn add(&mut self, report: Report) {
        let Report { desk, line, outcome, holder, free_within_ms, text } = report;
        let Some(request) = self.requests.get(&(desk.clone(), line)) else {
            self.faults.push(format!("{desk} reports on line {line}, which it was not given"));
            return;
        };
        let text = text.unwrap_or_default();
        match outcome {
            Outcome::Done => say(format!("{desk}: {request}")),
            Outcome::RolledBack => {
                say(format!("{desk}: ROLLED BACK {} (line {line}): {text}", request.order_no));
            }
            Outcome::Deferred => {
                self.busy_answers += 1;
                say(format!("{desk}: LATER {} (line {line}): {text}", request.order_no));
            }
            Outcome::Failed => {
                say(format!("{desk}: FAILED {} (line {line}): {text}", request.order_no));
            }
            Outcome::Busy | Outcome::Refused => {
                self.busy_answers += 1;
                let holder = holder.unwrap_or_default();
                let retry = free_within_ms.map_or_else(
                    || "it has no expiry".to_owned(),
                    |ms| format!("free in {:.1?} at the latest", Duration::from_millis(ms)),
                );
                say(format!("{desk}: BUSY {text} (held by {holder}; {retry})"));
            }
        }
        if outcome != Outcome::Busy {
            self.ends.push((desk, line, outcome));
        }
    }

    /// Keeps another fault.
    pub fn add_fault(&mut self, fault: String) {
        self.faults.push(fault);
    }

    /// Compares the reports with the requests, and with the record that the bodies have written.
    pub fn check(&mut self, findings: &Findings) {
        self.faults.extend(findings.faults.iter().cloned());
        self.bodies = findings.bodies.values().sum();
        self.beside_lost = findings.beside_lost;
        let mut done: HashMap<(String, u64), u32> = HashMap::new();
        let mut ended = HashSet::new();
        for (desk, line, outcome) in &self.ends {
            let id = (desk.clone(), *line);
            if matches!(outcome, Outcome::Done | Outcome::Deferred | Outcome::RolledBack) {
                *done.entry(id.clone()).or_default() += 1;
            }
            if !ended.insert(id) {
                self.faults.push(format!("line {line} ended twice at {desk}"));
            }
        }
        for (id @ (desk, line), request) in &self.requests {
            let (ran, done) = (findings.bodies.get(id), done.get(id));
            if !ended.contains(id) {
                let order = &request.order_no;
                self.faults
                    .push(format!("nobody knows what became of {order} (line {line}) at {desk}"));
            } else if ran != done && !self.ended_as(id, Outcome::Failed) {
                let (ran, done) = (ran.unwrap_or(&0), done.unwrap_or(&0));
                self.faults.push(format!(
                    "line {line} at {desk}: {ran} bodies ran and {done} were reported done"
                ));
            }
            let assigned = request.task == Task::Assign && self.ended_as(id, Outcome::Done);
            let booked = *findings.bookings.get(id).unwrap_or(&0);
            if booked != i32::from(self.lose && assigned) {
                let order = &request.order_no;
                self.faults.push(format!(
                    "{order} (line {line}) is booked out of stock {booked} times at {desk}"
                ));
            }
        }
        self.faults.sort();
    }

    fn ended_as(&self, (desk, line): &(String, u64), end: Outcome) -> bool {
        let end = (desk, line, end);
        self.ends.iter().any(|(desk, line, outcome)| (desk, line, *outcome) == end)
    }

    /// Prints the summary, and returns whether all is well.
    pub fn print(&self) -> bool {
        let orders: HashSet<&str> =
            self.batch.requests.iter().map(|request| request.order_no.as_str()).collect();
        let ended = |task: Option<Task>, end: Outcome| {
            let requests = self.ends.iter().filter(|(desk, line, outcome)| {
                let request = self.requests.get(&(desk.clone(), *line));
                *outcome == end && task.is_none_or(|task| request.is_some_and(|r| r.task == task))
            });
            requests.count()
        };
        let (refused, failed) = (ended(None, Outcome::Refused), ended(None, Outcome::Failed));
        say(format!("\n{} requests for {} orders", self.requests.len(), orders.len()));
        for (what, count) in [
            ("audited", ended(Some(Task::Audit), Outcome::Done)),
            ("assigned", ended(Some(Task::Assign), Outcome::Done)),
            ("done later", ended(None, Outcome::Deferred)),
            ("refused as busy", refused),
            ("failed", failed),
            ("unreadable lines", self.batch.unreadable.len()),
            ("busy answers", self.busy_answers),
        ] {
            say(format!("  {what:18} {count:4}"));
        }
        if self.lose {
            let rolled_back = ended(None, Outcome::RolledBack);
            say(format!("  {:18} {rolled_back:4}", "lost, rolled back"));
        }
        for fault in &self.faults {
            say(format!("FAULT: {fault}"));
        }
        if self.faults.is_empty() {
            let bodies = self.bodies;
            let checked = format!("checked: every request is accounted for, {bodies} bodies ran, ");
            say(if self.lose {
                let beside = self.beside_lost;
                format!(
                    "{checked}no order was in two of them at once but where a lock was lost ({beside} times), and what is out of stock is what was assigned"
                )
            } else {
                format!("{checked}and no order was in two of them at once")
            });
        }
        let well = self.faults.is_empty() && failed == 0 && self.batch.unreadable.is_empty();
        say(if well { "ok" } else { "NOT OK" });
        well
    }
}

/// Writes a line. A reader that is gone, such as `head`, does not stop the work.
pub fn say(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}
