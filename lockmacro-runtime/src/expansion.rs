//! What expansions need beyond the public API: constants as keys, of which the attribute sees the
//! name and not the text.

use std::collections::BTreeSet;

use crate::sys::sync::Mutex;
use crate::value::key::LockKey;

/// Makes a key of a constant. A text with a placeholder for one of the function's arguments is
/// logged once, because all calls share one lock then.
pub fn constant_key(constant: impl Into<LockKey>, arguments: &[&str]) -> LockKey {
    let key = constant.into();
    if let Some(argument) = placeholder(key.as_str(), arguments)
        && is_new(key.as_str())
    {
        tracing::warn!(
            key = %key.shown(),
            "this key is a constant, so `<{argument}>` in it is not filled in and all calls share \
             one lock: write the text itself in the attribute, `key = {:?}`",
            key.as_str()
        );
    }
    key
}

/// The first of `arguments` that is the start of a placeholder.
fn placeholder<'a>(text: &str, arguments: &[&'a str]) -> Option<&'a str> {
    text.match_indices('<').find_map(|(open, _)| {
        let rest = &text[open + 1..];
        let (inside, _) = rest.split_once('>')?;
        arguments.iter().copied().find(|argument| {
            inside
                .trim()
                .strip_prefix(argument)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', ' ']))
        })
    })
}

/// Whether this text was not logged yet. There are at most as many texts as constants.
fn is_new(text: &str) -> bool {
    static LOGGED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    LOGGED.lock().insert(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_placeholder_of_an_argument_is_one() {
        let arguments = ["id", "order"];
        for text in ["order:<id>", "<order.id>:x", "< id >", "a<b>:<id>", "<order[0]>"] {
            assert!(placeholder(text, &arguments).is_some(), "{text}");
        }
        for text in ["order", "order:<ids>", "<sn>", "id>", "<id", "List<String>", "{id}"] {
            assert_eq!(placeholder(text, &arguments), None, "{text}");
        }
    }

    #[test]
    fn a_text_is_new_once() {
        assert!(is_new("constant:<id>"));
        assert!(!is_new("constant:<id>"));
    }
}
