//! The record of what really happened, written by the bodies themselves and protected by no lock.
//!
//! Every body appends a line when it enters an order and one when it leaves. The system puts
//! appended lines of all processes into one sequence, so two bodies that were in the same order at
//! once cannot but show as two entries without a leave between them. Bookings out of a warehouse's
//! stock are lines as well. The bookings of a request count less those that were taken back.

use std::collections::{HashMap, HashSet};
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

    /// Notes that a body is in an order, until the returned value is dropped.
    pub fn enter(&self, desk: &str, request: &Request) -> io::Result<Presence> {
        let event = event(desk, request);
        self.append(&format!("enter\t{event}"))?;
        Ok(Presence { record: self.clone(), event })
    }

    /// Books the goods of an order out of stock.
    pub fn book(&self, desk: &str, request: &Request) -> io::Result<Booking> {
        let event = event(desk, request);
        self.append(&format!("book\t{event}"))?;
        Ok(Booking { record: self.clone(), event })
    }

    fn append(&self, line: &str) -> io::Result<()> {
        // One write for one line, so that a line is never torn.
        (&*self.0).write_all(line.as_bytes())
    }
}

fn event(desk: &str, request: &Request) -> String {
    format!("{desk}\t{}\t{}\n", request.line, request.order_no)
}

/// Goods that are booked out of stock, and stay so unless they are taken back.
#[derive(Debug)]
pub struct Booking {
    record: Record,
    event: String,
}

impl Booking {
    pub fn take_back(self) -> io::Result<()> {
        self.record.append(&format!("unbook\t{}", self.event))
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

/// The contents of a record.
#[derive(Debug, Default)]
pub struct Findings {
    /// How often a body ran for a request, by desk and line.
    pub bodies: HashMap<(String, u64), u32>,
    /// Bookings out of stock for a request, less those that were taken back.
    pub bookings: HashMap<(String, u64), i32>,
    /// How often a body whose lock was lost had another one beside it.
    pub beside_lost: u32,
    /// Faults: orders in two bodies at once, and bodies that never left.
    pub faults: Vec<String>,
}

/// Goes through the record of a finished run.
pub fn read(path: &Path) -> io::Result<Findings> {
    Ok(examine(&std::fs::read_to_string(path)?))
}

fn examine(text: &str) -> Findings {
    let mut findings = Findings::default();
    let mut inside: HashMap<&str, Vec<(&str, u64)>> = HashMap::new();
    let (mut together, mut rolled_back) = (Vec::new(), HashSet::new());
    for line in text.lines() {
        let mut fields = line.splitn(4, '\t');
        let mut field = || fields.next().unwrap_or_default();
        let (event, desk, number, order) = (field(), field(), field(), field());
        let Ok(number) = number.parse::<u64>() else {
            findings.faults.push(format!("the record has an unreadable line: {line:?}"));
            continue;
        };
        let (body, id) = ((desk, number), (desk.to_owned(), number));
        let bodies = inside.entry(order).or_default();
        match event {
            "enter" => {
                together.extend(bodies.iter().map(|other| (order, *other, body)));
                bodies.push(body);
                *findings.bodies.entry(id).or_default() += 1;
            }
            "leave" => bodies.retain(|other| *other != body),
            "book" => *findings.bookings.entry(id).or_default() += 1,
            "unbook" => {
                *findings.bookings.entry(id).or_default() -= 1;
                rolled_back.insert(body);
            }
            _ => findings.faults.push(format!("the record has an unknown event: {line:?}")),
        }
    }
    for (order, one, other) in together {
        // Without its lock a body excludes no other body, and so is rolled back.
        if rolled_back.contains(&one) || rolled_back.contains(&other) {
            findings.beside_lost += 1;
            continue;
        }
        let ((desk, number), (other_desk, other_number)) = (one, other);
        findings.faults.push(format!(
            "order {order} was in two bodies at once: of {desk} (line {number}) and of {other_desk} (line {other_number})"
        ));
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
    fn a_body_beside_one_that_was_rolled_back_is_no_fault() {
        let text = "enter\ta\t2\tX\nbook\ta\t2\tX\nenter\tb\t3\tX\nbook\tb\t3\tX\nleave\ta\t2\tX\nunbook\ta\t2\tX\nleave\tb\t3\tX\n";
        let findings = examine(text);
        assert_eq!((findings.faults, findings.beside_lost), (Vec::new(), 1));
        let booked = |desk: &str, line| findings.bookings[&(desk.to_owned(), line)];
        assert_eq!((booked("a", 2), booked("b", 3)), (0, 1));
    }

    #[test]
    fn a_body_that_never_left_is_a_fault() {
        let findings = examine("enter\ta\t2\tX\n");
        assert_eq!(findings.faults, ["order X was never left by a (line 2)"]);
    }
}
