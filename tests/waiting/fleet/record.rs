//! The record of the bodies, written without a lock.
//!
//! The system puts appended lines of all processes into one sequence, so two bodies that were under
//! a key at once cannot but show as two entries without a leave between them.

use std::collections::HashMap;
use std::path::Path;

/// An entry of a record.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) bodies: u32,
    pub(super) faults: Vec<String>,
}

pub(super) fn read(path: &Path) -> Findings {
    examine(&std::fs::read_to_string(path).expect("the record can be read"))
}

#[derive(Default)]
struct Key<'a> {
    inside: Option<&'a str>,
    fence: u64,
}

fn examine(text: &str) -> Findings {
    let mut found = Findings::default();
    let mut keys: HashMap<&str, Key<'_>> = HashMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let &[event, name, body, fence] = fields.as_slice() else {
            found.faults.push(format!("an unreadable line: {line:?}"));
            continue;
        };
        if event == "dead" {
            for key in keys.values_mut() {
                key.inside = key.inside.filter(|inside| !inside.starts_with(body));
            }
            continue;
        }
        let key = keys.entry(name).or_default();
        if event == "leave" {
            if key.inside.take_if(|inside| *inside == body).is_none() {
                found.faults.push(format!("{body} left {name} late: {:?} is in", key.inside));
            }
            continue;
        }
        found.bodies += 1;
        if let Some(other) = key.inside.replace(body) {
            found.faults.push(format!("{body} entered {name} while {other} was in"));
        }
        let fence = fence.parse().unwrap_or_default();
        if fence <= key.fence {
            found.faults.push(format!("{body} has fence {fence} after {} on {name}", key.fence));
        }
        key.fence = fence;
    }
    let inside = keys.iter().filter_map(|(name, key)| Some((key.inside?, name)));
    found.faults.extend(inside.map(|(body, name)| format!("{body} never left {name}")));
    found
}

#[test]
fn bodies_one_after_the_other_are_no_fault() {
    let found = examine(
        "enter\tx\ta/1/0\t5\nenter\ty\ta/2/0\t1\nleave\tx\ta/1/0\t5\n\
         enter\tx\tb/1/0\t6\ndead\t\tb/\t0\n\
         enter\tx\ta/1/1\t7\nleave\ty\ta/2/0\t1\nleave\tx\ta/1/1\t7\n",
    );
    assert_eq!((found.bodies, found.faults), (4, Vec::new()));
}

#[test]
fn what_a_lock_must_prevent_is_a_fault() {
    for (text, word) in [
        ("enter\tx\ta/1/0\t5\nenter\tx\tb/1/0\t6\nleave\tx\tb/1/0\t6\n", "while a/1/0 was in"),
        ("enter\tx\ta/1/0\t5\n", "never left"),
        (
            "enter\tx\ta/1/0\t5\nleave\tx\ta/1/0\t5\nenter\tx\ta/1/1\t5\nleave\tx\ta/1/1\t5\n",
            "fence 5",
        ),
        ("enter\tx\ta/1/0\t5\ndead\t\tb/\t0\n", "never left"),
        ("leave\tx\ta/1/0\t5\n", "late"),
        ("enter\tx", "unreadable"),
    ] {
        let faults = examine(text).faults;
        assert!(faults.len() == 1 && faults[0].contains(word), "{text:?}: {faults:?}");
    }
}
