//! A string that stands alone in the attribute.

use syn::Token;
use syn::parse::ParseStream;

use crate::known::KNOWN;
use crate::placeholder::roots_in;
use crate::words;

/// The argument that was probably meant, and the message for the string `text` after the argument
/// `before`. `rest` is the input behind the string.
///
/// A text without placeholders is no second key: every call would have it.
pub(crate) fn refusal(
    text: &str,
    before: Option<String>,
    rest: ParseStream,
) -> (&'static str, String) {
    let known = KNOWN.iter().find(|(known, _)| *known == text);
    let (about, message) = match (known, before.as_deref()) {
        _ if rest.peek(Token![=]) => {
            (None, format!("an argument's name stands without quotes: write `{text} = ..`"))
        }
        (Some((bare, example)), _) if bare == example => {
            (None, format!("`{text}` is an argument: write `{text}` without quotes"))
        }
        (Some((_, example)), _) => (
            None,
            format!("`{text}` is an argument: write `{example}`, with the name outside of quotes"),
        ),
        (None, Some("key")) if !roots_in(text).is_empty() => {
            (None, format!("several keys stand in brackets: write `key = [\"..\", {text:?}]`"))
        }
        (None, Some(_)) if roots_in(text).is_empty() => match words::mend(text) {
            Some((meant, mend)) => (meant, format!("{text:?}: {mend}")),
            None => (
                None,
                "this string belongs to no argument: write the argument's name before it, as in \
                 `wait = \"5s\"`, or remove it"
                    .to_owned(),
            ),
        },
        _ => (None, format!("this string has no name: write `key = {text:?}`")),
    };
    (about.or(known.map(|(known, _)| *known)).unwrap_or("key"), message)
}
