//! Bytes of the protocol for the trace, in short.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use lockmacro_runtime::simulation::scripts;

/// Longest text of one message.
const LONGEST: usize = 240;

/// The parts of a message without their lengths, cut where they are long.
pub(crate) struct Shown<'a>(pub &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(self.0))
    }
}

/// The name of a script, if this is the hash of one.
fn script(word: &str) -> Option<&'static str> {
    static NAMES: LazyLock<HashMap<&str, &str>> =
        LazyLock::new(|| scripts().map(|(hash, code)| (hash, name(code))).collect());
    NAMES.get(word).copied()
}

/// The first words of the comment that names the arguments of a script.
fn name(code: &str) -> &str {
    let before = code.split("\n-- ARGV").next().unwrap_or(code);
    let comment = before.lines().rev().take_while(|line| line.starts_with("--")).last();
    let words = comment.unwrap_or(code).trim_start_matches("-- ");
    words.split([',', ':', '.', ';']).next().unwrap_or(words)
}

fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut short = String::new();
    for line in text.split("\r\n") {
        if line.is_empty() || (line.starts_with(['$', '*', '>', '%']) && line.len() > 1) {
            continue;
        }
        let line = script(line).unwrap_or(line);
        if short.len() > LONGEST {
            short.push('…');
            break;
        }
        if !short.is_empty() {
            short.push(' ');
        }
        match line.char_indices().nth(60) {
            Some((end, _)) => {
                short.push_str(&line[..end].replace('\n', "⏎"));
                short.push('…');
            }
            None => short.push_str(&line.replace('\n', "⏎")),
        }
    }
    short
}
