//! Tables, and text that others have written.

use std::fmt::Write;
use std::time::Duration;

use lockmacro_runtime::look::Odd;
use serde_json::{Value, json};

/// Longer cells are cut in a table.
const CELL_MAX: usize = 80;

/// Rows under their titles, in columns; all but the last column are padded.
pub fn table<const N: usize>(titles: [&str; N], rows: &[[String; N]]) -> String {
    let titles = titles.map(str::to_owned);
    let rows: Vec<[String; N]> = std::iter::once(&titles)
        .chain(rows)
        .map(|row| row.each_ref().map(|cell| cut(cell)))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or_default());
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a string does not fail.
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// What is odd, a line for each.
pub fn odd_lines(odd: &[Odd]) -> String {
    odd.iter().map(|odd| format!("! {}: {}\n", plain(&odd.key), plain(&odd.what))).collect()
}

pub fn odd_json(odd: &[Odd]) -> Value {
    odd.iter().map(|odd| json!({ "key": odd.key, "what": odd.what })).collect()
}

pub fn document(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Text of somebody else without what would do something to a terminal.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_direction(c) {
            plain.extend(c.escape_default());
        } else {
            plain.push(c);
        }
    }
    plain
}

/// Whether it changes the order in which text is shown.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn cut(text: &str) -> String {
    let text = plain(text);
    match text.char_indices().nth(CELL_MAX) {
        Some(_) => text.chars().take(CELL_MAX - 1).chain(['…']).collect(),
        None => text,
    }
}

/// A time as a person says it; `-` for none.
pub fn time(time: Option<Duration>) -> String {
    let Some(time) = time else { return "-".to_owned() };
    match time.as_secs() {
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        seconds @ 60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds @ 3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        seconds => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

pub fn millis(time: Option<Duration>) -> Option<u64> {
    time.and_then(|time| u64::try_from(time.as_millis()).ok())
}

/// The same text; what stands between `://` and an `@` is left out.
pub fn without_passwords(text: &str) -> String {
    let mut parts = text.split("://");
    let mut safe = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(char::is_whitespace).unwrap_or(part.len());
        let host = part[..end].rfind('@').unwrap_or(0);
        safe.push_str("://");
        if host > 0 {
            safe.push('…');
        }
        safe.push_str(&part[host..]);
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        let text = "error: unrecognized subcommand 'redis://u:p@ss@host/0'\n\nUsage: a://b c@d";
        let safe = "error: unrecognized subcommand 'redis://…@host/0'\n\nUsage: a://b c@d";
        assert_eq!(without_passwords(text), safe);
    }

    #[test]
    fn text_of_others_does_nothing_to_a_terminal() {
        assert_eq!(plain("订单 \u{1b}[2J\n\u{202e}x"), "订单 \\u{1b}[2J\\n\\u{202e}x");
    }

    #[test]
    fn columns_are_aligned_and_long_cells_cut() {
        let rows = [["a".to_owned(), "x".repeat(100)], ["order:1".to_owned(), "y".to_owned()]];
        let text = table(["KEY", "B"], &rows);
        let long = "x".repeat(CELL_MAX - 1);
        assert_eq!(text, format!("KEY      B\na        {long}…\norder:1  y\n"));
    }

    #[test]
    fn times_are_said_in_two_parts() {
        let said = |seconds| time(Some(Duration::from_secs_f64(seconds)));
        assert_eq!(said(4.25), "4.2 s");
        assert_eq!(said(250.0), "4 min 10 s");
        assert_eq!(said(3_660.0), "1 h 1 min");
        assert_eq!(said(90_000.0), "1 d 1 h");
    }
}
