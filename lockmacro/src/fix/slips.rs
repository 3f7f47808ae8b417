//! Words that were probably meant: other cases, quotes and typing mistakes.

use quote::ToTokens as _;
use syn::Expr;

use crate::messages;

/// The message for a value that is one of these words, but for quotes, case or a typing mistake. A
/// word may show its arguments, as in `fallback(path)`.
pub(crate) fn near(value: &Expr, argument: &str, known: &[&str]) -> Option<String> {
    let word = word(value);
    let near = known.iter().find(|near| {
        let near = near.split('(').next().unwrap_or_default();
        slips(&word, near) <= (near.len() / 5).max(1)
    })?;
    Some(messages::unknown_value(shown(value), argument, near))
}

/// The word that a value is: of `skip`, `Skip`, `OnBusy::Skip`, `skip(..)`, `"skip"` and `true`.
pub(crate) fn word(value: &Expr) -> String {
    let text = shown(value);
    let text = text.split('(').next().unwrap_or_default();
    match text.rsplit_once("::") {
        Some((path, word)) if path.ends_with("OnBusy") || path.ends_with("OnLost") => word,
        // A path of the user's.
        Some(_) => "",
        None => text.trim_matches('"'),
    }
    .to_owned()
}

/// A value as it is written.
pub(crate) fn shown(value: &Expr) -> String {
    let tokens = value.to_token_stream().to_string();
    tokens.replace(" :: ", "::").replace(":: ", "::").replace(" (", "(").replace("- ", "-")
}

/// `minHold` and `MIN_HOLD` are one word.
pub(crate) fn is_word(one: &str, other: &str) -> bool {
    plain(one) == plain(other)
}

fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// The number of typing mistakes between two words. Two swapped letters are one mistake.
pub(crate) fn slips(one: &str, other: &str) -> usize {
    strsim::osa_distance(&plain(one), &plain(other))
}
