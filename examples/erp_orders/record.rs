//! What really happened, written down by the bodies themselves and protected by no lock.
//!
//! Every body appends a line when it enters an order and one when it leaves. The system puts
//! appended lines of all processes into one sequence, so two bodies that were in the same order at
//! once cannot but show as two entries without a leave between them.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use crate::orders::Request;

/// The file, opened for appending. Clones write to the same one.
#[derive(Debug, Clone)]
pub struct Record(Arc<File>);

impl Record {
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new(OpenOptions::new().append(true).open(path)?)))
    }

    /// Notes that a body is in an order, until what this gives is dropped.
    pub fn enter(&self, desk: &str, request: &Request) -> io::Result<Presence> {
        let event = format!("{desk}\t{}\t{}\n", request.line, request.order_no);
        self.append(&format!("enter\t{event}"))?;
        Ok(Presence { record: self.clone(), event })
    }

    fn append(&self, line: &str) -> io::Result<()> {
        // One write for one line: that is what makes a line whole.
        (&*self.0).write_all(line.as_bytes())
    }
}

/// A body that is in an order. It leaves also when it is cancelled, or fails.
#[derive(Debug)]
pub struct Presence {
    record: Record,
    event: String,
}

impl Drop for Presence {
    fn drop(&mut self) {
        // A leave that could not be written is missing in the record, which the check notices.
        let _ = self.record.append(&format!("leave\t{}", self.event));
    }
}

/// What a record says.
#[derive(Debug, Default)]
pub struct Findings {
    /// How often a body ran for a request, by desk and line.
    pub bodies: HashMap<(String, u64), u32>,
    /// What must not be there: orders in two bodies at once, bodies that never left.
    pub faults: Vec<String>,
}

/// Goes through the record of a finished run.
pub fn read(path: &Path) -> io::Result<Findings> {
    Ok(examine(&std::fs::read_to_string(path)?))
}

fn examine(text: &str) -> Findings {
    let mut findings = Findings::default();
    let mut inside: HashMap<&str, Vec<(&str, u64)>> = HashMap::new();
    for line in text.lines() {
        let mut fields = line.splitn(4, '\t');
        let mut field = || fields.next().unwrap_or_default();
        let (event, desk, number, order) = (field(), field(), field(), field());
        let Ok(number) = number.parse::<u64>() else {
            findings.faults.push(format!("the record has an unreadable line: {line:?}"));
            continue;
        };
        let bodies = inside.entry(order).or_default();
        if event == "enter" {
            if let Some((other, other_number)) = bodies.last() {
                findings.faults.push(format!(
                    "order {order} was in two bodies at once: of {other} (line {other_number}) and of {desk} (line {number})"
                ));
            }
            bodies.push((desk, number));
            *findings.bodies.entry((desk.to_owned(), number)).or_default() += 1;
        } else {
            bodies.retain(|body| *body != (desk, number));
        }
    }
    for (order, bodies) in inside {
        for (desk, number) in bodies {
            let fault = format!("order {order} was never left by {desk} (line {number})");
            findings.faults.push(fault);
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_one_after_the_other_are_no_fault() {
        let text = "enter\ta\t2\tX\nenter\tb\t3\tY\nleave\ta\t2\tX\nenter\tb\t4\tX\nleave\tb\t4\tX\nleave\tb\t3\tY\n";
        let findings = examine(text);
        assert_eq!(findings.faults, Vec::<String>::new());
        assert_eq!(findings.bodies.len(), 3);
    }

    #[test]
    fn two_bodies_in_one_order_are_a_fault() {
        let findings = examine("enter\ta\t2\tX\nenter\tb\t3\tX\nleave\ta\t2\tX\nleave\tb\t3\tX\n");
        assert_eq!(findings.faults.len(), 1, "{findings:?}");
        assert!(findings.faults[0].contains("order X was in two bodies at once"));
    }

    #[test]
    fn a_body_that_never_left_is_a_fault() {
        let findings = examine("enter\ta\t2\tX\n");
        assert_eq!(findings.faults, ["order X was never left by a (line 2)"]);
    }
}
