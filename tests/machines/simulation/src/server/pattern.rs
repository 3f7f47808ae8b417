//! Patterns of keys and channels.

/// Whether a text matches a pattern of `*`, `?`, `[a-z]`, `[^a]` and `\`.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let Some((first, rest)) = pattern.split_first() else { return text.is_empty() };
    match first {
        b'*' => (0..=text.len()).any(|skipped| matches(rest, &text[skipped..])),
        b'?' => !text.is_empty() && matches(rest, &text[1..]),
        b'[' => {
            let Some((byte, after)) = text.split_first() else { return false };
            let (found, rest) = in_class(rest, *byte);
            found && matches(rest, after)
        }
        b'\\' if !rest.is_empty() => {
            text.first() == Some(&rest[0]) && matches(&rest[1..], &text[1..])
        }
        byte => text.first() == Some(byte) && matches(rest, &text[1..]),
    }
}

/// Whether a byte is in the class that begins here, and what follows the class.
fn in_class(class: &[u8], byte: u8) -> (bool, &[u8]) {
    let (negated, mut class) = match class.strip_prefix(b"^") {
        Some(class) => (true, class),
        None => (false, class),
    };
    let mut found = false;
    loop {
        match class {
            [] => return (found != negated, class),
            [b']', rest @ ..] => return (found != negated, rest),
            [b'\\', one, rest @ ..] => {
                found |= *one == byte;
                class = rest;
            }
            [first, b'-', last, rest @ ..] => {
                let (low, high) = (first.min(last), first.max(last));
                found |= (low..=high).contains(&&byte);
                class = rest;
            }
            [one, rest @ ..] => {
                found |= *one == byte;
                class = rest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_a_shell_does() {
        for (pattern, text) in [
            ("*", ""),
            ("lm1:w*", "lm1:wq:{a}"),
            ("a?c", "abc"),
            ("a[b-d]e", "ace"),
            ("a[^b]e", "ace"),
            ("a\\*", "a*"),
            ("[\\]]", "]"),
        ] {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("a", ""), ("a?c", "ac"), ("a[^b]e", "abe"), ("[", "a")]
        {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }
}
