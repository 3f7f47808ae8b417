//! Lines of words, sent to both servers.

use std::time::Duration;

use super::both::{Both, packed};

/// Sends commands to both, in each version of the protocol, and asserts the same replies. A line has
/// several, with ` | ` between them. The command `wait 5` lets five milliseconds pass.
pub fn same_replies(lines: &[&str]) {
    let mut both = Both::start(1);
    let mut differences = Vec::new();
    for protocol in ["2", "3"] {
        for line in [format!("HELLO {protocol}"), "FLUSHALL".to_owned()] {
            both.same(0, &command(&line));
        }
        for line in lines.iter().flat_map(|line| line.split(" | ")) {
            if let Some(time) = line.strip_prefix("wait ") {
                both.advance(Duration::from_millis(time.parse().expect("milliseconds")));
            } else if let Some(difference) = both.ask(0, &command(line)).difference() {
                differences.push(format!("{line}:\n{difference}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The request of a line of words. Those in quotes may have spaces, and line breaks as `\n`.
pub fn command(line: &str) -> Vec<u8> {
    let (mut words, mut quoted, mut begun) = (vec![Vec::new()], false, false);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let word = words.last_mut().expect("there is always one");
        match character {
            '"' => (quoted, begun) = (!quoted, true),
            '\\' => match characters.next().expect("an escaped character") {
                'n' => word.push(b'\n'),
                'r' => word.push(b'\r'),
                'x' => {
                    let digits: String = characters.by_ref().take(2).collect();
                    word.push(u8::from_str_radix(&digits, 16).expect("two digits"));
                }
                other => word.extend(other.to_string().bytes()),
            },
            ' ' if !quoted => {
                if begun || !word.is_empty() {
                    words.push(Vec::new());
                    begun = false;
                }
            }
            other => word.extend(other.to_string().bytes()),
        }
    }
    packed(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
}
