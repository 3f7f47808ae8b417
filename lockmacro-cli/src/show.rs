//! Tables and JSON documents, and text of others made safe for a terminal.

use std::fmt::Write;
use std::time::Duration;

use lockmacro_runtime::inspect::Skipped;
use serde_json::{Value, json};
use terminal_size::{Width, terminal_size_of};
use unicode_width::UnicodeWidthStr;

/// Largest width of a column where the width of the table is not limited.
const ALIGNED_MAX: usize = 80;
/// Least width of a column on a narrow terminal.
const NARROW: usize = 8;
/// Blanks between two columns.
const GAP: usize = 2;

/// Formats rows under their titles, in columns. A terminal gets cells that are cut to its width; a
/// file or another program gets the whole text.
pub fn table<const N: usize>(titles: [&str; N], rows: &[[String; N]]) -> String {
    let room = terminal_size_of(std::io::stdout()).map(|(Width(columns), _)| columns.into());
    laid_out(titles, rows, room)
}

/// Formats a table for a width of `room`. All columns but the last are padded.
fn laid_out<const N: usize>(
    titles: [&str; N],
    rows: &[[String; N]],
    room: Option<usize>,
) -> String {
    let titles = titles.map(str::to_owned);
    let all = std::iter::once(&titles).chain(rows);
    let rows: Vec<[String; N]> = all.map(|row| row.each_ref().map(|cell| plain(cell))).collect();
    let longest = |column: usize| rows.iter().map(|row| row[column].width()).max();
    let mut widths: [usize; N] = std::array::from_fn(|column| longest(column).unwrap_or_default());
    match room {
        Some(room) => fit(&mut widths, room),
        None => widths = widths.map(|width| width.min(ALIGNED_MAX)),
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, wide) in row.iter().zip(widths) {
            let cell = if room.is_some() { cut(cell, wide) } else { cell.clone() };
            line.push_str(&cell);
            line.extend(std::iter::repeat_n(' ', wide.saturating_sub(cell.width()) + GAP));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Narrows the widest columns until all fit.
fn fit<const N: usize>(widths: &mut [usize; N], room: usize) {
    let room = room.saturating_sub(GAP * N.saturating_sub(1));
    *widths = widths.map(|width| width.min(room.max(NARROW)));
    while widths.iter().sum::<usize>() > room
        && let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > NARROW)
    {
        *widest -= 1;
    }
}

/// Formats skipped keys, a line for each.
pub fn skipped_lines(skipped: &[Skipped]) -> String {
    skipped
        .iter()
        .map(|skipped| format!("! {}: {}\n", plain(&skipped.key), plain(&skipped.reason)))
        .collect()
}

pub fn skipped_json(skipped: &[Skipped]) -> Value {
    skipped.iter().map(|skipped| json!({ "key": skipped.key, "reason": skipped.reason })).collect()
}

/// Formats JSON for a terminal: characters that [`plain`] escapes are escaped as JSON does.
pub fn document(value: &Value) -> String {
    let mut text = String::new();
    for c in format!("{value:#}\n").chars() {
        if is_odd(c) && c != '\n' {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string does not fail.
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(c);
        }
    }
    text
}

/// Escapes characters in the text of others that would control a terminal.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if is_odd(c) {
            plain.extend(c.escape_default());
        } else {
            plain.push(c);
        }
    }
    plain
}

/// A word as a shell takes it.
pub fn shell(word: &str) -> String {
    let is_safe = |c: char| c.is_alphanumeric() || "_-./:=+@,".contains(c);
    if !word.is_empty() && word.chars().all(is_safe) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Whether a character controls a terminal, ends a line, changes the direction of the text, or is
/// invisible.
fn is_odd(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Cuts a text to `room` columns.
fn cut(text: &str, room: usize) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    let ends: Vec<_> = text.char_indices().map(|(end, _)| end).collect();
    let fitting = ends.partition_point(|end| text[..*end].width() < room);
    let end = ends[..fitting].last().copied().unwrap_or_default();
    format!("{}…", &text[..end])
}

/// Formats a time for people; `-` for none.
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

/// Cuts what a paragraph says from a URL on: there is no telling where a password in it ends.
pub fn without_passwords(text: &str) -> String {
    let safe = |paragraph: &str| match paragraph.split_once("://") {
        Some((before, _)) => format!("{before}://…"),
        None => paragraph.to_owned(),
    };
    text.split("\n\n").map(safe).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        for url in ["redis://u:p@s s@host/0", "redis+unix:///tmp/u.sock?pass=pss"] {
            let text = format!("error: unrecognized subcommand '{url}'\n\nUsage: lockmacro");
            let scheme = url.split("://").next().expect("a scheme");
            let safe = format!("error: unrecognized subcommand '{scheme}://…\n\nUsage: lockmacro");
            assert_eq!(without_passwords(&text), safe);
        }
    }

    #[test]
    fn a_word_of_others_is_one_word_of_a_shell() {
        assert_eq!(shell("order:42"), "order:42");
        assert_eq!(shell("+pubsub|numsub"), "'+pubsub|numsub'");
        assert_eq!(shell("a'; reboot; '"), r"'a'\''; reboot; '\'''");
    }

    #[test]
    fn text_of_others_cannot_control_a_terminal() {
        assert_eq!(plain("订单 \u{1b}[2J\n\u{202e}x"), "订单 \\u{1b}[2J\\n\\u{202e}x");
    }

    #[test]
    fn a_document_of_others_cannot_control_a_terminal_and_keeps_its_value() {
        let value = json!({ "订单\u{9b}31m": "\u{202e}\u{2028}\u{1b}\u{feff} x\n" });
        let text = document(&value);
        assert!(text.chars().all(|c| c == '\n' || !is_odd(c)), "{text}");
        assert!(text.contains("订单\\u009b31m"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value);
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [["a".to_owned(), "x".to_owned()], ["order:1".to_owned(), "y".to_owned()]];
        for room in [None, Some(80), Some(10)] {
            assert_eq!(laid_out(["KEY", "B"], &rows, room), "KEY      B\na        x\norder:1  y\n");
        }
    }

    #[test]
    fn long_cells_are_cut_on_a_terminal_only() {
        let long = "x".repeat(100);
        let wide = "订".repeat(50);
        let rows = [
            [long.clone(), "a".to_owned(), wide.clone()],
            ["y".to_owned(), "b".to_owned(), "c".to_owned()],
        ];
        let titles = ["KEY", "B", "HOLDER"];
        let all = laid_out(titles, &rows, None);
        assert!(all.contains(&long) && all.contains(&wide), "{all}");
        assert!(all.ends_with(&format!("\ny{}b  c\n", " ".repeat(ALIGNED_MAX + 1))), "{all}");
        for room in [40, 60, 120] {
            let text = laid_out(titles, &rows, Some(room));
            assert!(text.lines().all(|line| line.width() <= room), "{text}");
            assert!(text.contains("x…  a  订"), "{text}");
        }
        // The lines wrap then, and can still be read.
        for room in 1..=21 {
            let text = laid_out(titles, &rows, Some(room));
            assert_eq!(text.lines().nth(1), Some("xxxxxxx…  a  订订订…"), "{room}");
        }
    }

    #[test]
    fn letters_that_are_wide_keep_the_columns() {
        let rows = [["order:订单7".to_owned(), "a".to_owned()], ["x".to_owned(), "b".to_owned()]];
        let text = laid_out(["KEY", "B"], &rows, Some(80));
        assert_eq!(text, "KEY          B\norder:订单7  a\nx            b\n");
    }

    #[test]
    fn marks_without_a_width_keep_the_columns() {
        let rows = [["cafe\u{301}".to_owned(), "a".to_owned()], ["ที่⌚".to_owned(), "b".to_owned()]];
        let text = laid_out(["KEY", "B"], &rows, Some(80));
        assert_eq!(text, "KEY   B\ncafe\u{301}  a\nที่⌚   b\n");
        // A mark stays with its letter where the text is cut.
        assert_eq!(cut("e\u{301}e\u{301}e\u{301}", 2), "e\u{301}…");
    }

    #[test]
    fn times_have_at_most_two_parts() {
        let shown = |seconds| time(Some(Duration::from_secs_f64(seconds)));
        assert_eq!(shown(4.25), "4.2 s");
        assert_eq!(shown(250.0), "4 min 10 s");
        assert_eq!(shown(3_660.0), "1 h 1 min");
        assert_eq!(shown(90_000.0), "1 d 1 h");
    }
}
