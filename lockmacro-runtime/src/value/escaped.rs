//! Foreign text, made safe for errors, logs and terminals.

use std::fmt::{self, Write as _};

/// Displays a text with control characters escaped, as in `\u{1b}`.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| {
            if is_unsafe(c) { c.escape_default().fmt(f) } else { f.write_char(c) }
        })
    }
}

/// Control characters, line separators, changes of the text's direction, and invisible characters.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}')
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
        || matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let shown = Escaped("订单 \u{1b}]0;x\u{7}\r\n\u{202e}a\u{9b}").to_string();
        assert_eq!(shown, "订单 \\u{1b}]0;x\\u{7}\\r\\n\\u{202e}a\\u{9b}");
        assert_eq!(Escaped("web-3:4711 \\é").to_string(), "web-3:4711 \\é");
    }
}
