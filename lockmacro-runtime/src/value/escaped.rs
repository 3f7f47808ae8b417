//! Text of others, as people may see it: in errors, in logs and on terminals.

use std::fmt::{self, Write as _};

/// Text in which whatever would do something to a terminal or a log is escaped, as `\u{1b}`.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.0;
        while let Some((at, odd)) = left.char_indices().find(|(_, c)| is_odd(*c)) {
            f.write_str(&left[..at])?;
            odd.escape_default().try_for_each(|c| f.write_char(c))?;
            left = &left[at + odd.len_utf8()..];
        }
        f.write_str(left)
    }
}

/// Controls, other line ends, what changes the order in which text is shown, and what is not seen.
fn is_odd(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}')
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
        || matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_something_to_a_terminal_or_a_log_is_escaped() {
        let shown = Escaped("订单 \u{1b}]0;x\u{7}\r\n\u{202e}a\u{9b}").to_string();
        assert_eq!(shown, "订单 \\u{1b}]0;x\\u{7}\\r\\n\\u{202e}a\\u{9b}");
        assert_eq!(Escaped("web-3:4711 \\é").to_string(), "web-3:4711 \\é");
    }
}
