//! Literal text in a template that looks like a placeholder of another kind.

use proc_macro2::Ident;

use crate::placeholder::roots_of;

/// The mistake in a literal that was probably meant as a placeholder for one of `names`.
pub(crate) fn mistake(text: &str, names: &[Ident]) -> Option<String> {
    in_braces(text, names)
        .or_else(|| behind_a_sign(text, names))
        .or_else(|| never_opened(text, names))
}

/// A placeholder of `printf`, such as `%s`.
pub(crate) fn printf(text: &str) -> Option<String> {
    text.match_indices('%').find_map(|(at, _)| {
        let (before, after) = (text[..at].chars().last(), &text[at + 1..]);
        let mut after = after.chars();
        let letter = after.next().filter(|c| "disuv".contains(*c))?;
        let alone = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '%');
        let alone = alone(before) && alone(after.next());
        alone.then(|| {
            format!(
                "`%{letter}` is literal text here: write an argument in angle brackets, as in \
                 `<id>`"
            )
        })
    })
}

/// `{id}`, `{}`, `{id:05}`, `#{id}` or `${id}`
fn in_braces(text: &str, names: &[Ident]) -> Option<String> {
    text.match_indices('{').find_map(|(open, _)| {
        let inner = &text[open + 1..];
        let inner = &inner[..inner.find('}')?];
        if inner.is_empty() || (inner.starts_with(':') && is_format(&inner[1..])) {
            let example = names.iter().find(|name| *name != "self").or(names.first())?;
            return Some(format!(
                "`{{{inner}}}` is literal text here: write an argument in angle brackets, as in \
                 `<{example}>`"
            ));
        }
        // The last `:`, because a method call may have `::<T>`.
        let (value, format) = match inner.rsplit_once(':') {
            Some((value, format)) if is_format(format) => (value.trim(), Some(format)),
            _ => (inner.trim(), None),
        };
        if !is_value(value, names) {
            return None;
        }
        let sign = text[..open].chars().last().filter(|c| matches!(c, '$' | '#'));
        Some(match (sign, format) {
            (Some(sign), _) => {
                format!("`{sign}{{{inner}}}` is literal text here: write `<{value}>` for its value")
            }
            (None, Some(_)) => format!(
                "`{{{inner}}}` is literal text here, and placeholders take no format: write \
                 `<{value}>` for its value"
            ),
            (None, None) => format!(
                "`{{{inner}}}` is literal text here: write `<{value}>` for its value, or \
                 `{{<{value}>}}` for its value in braces"
            ),
        })
    })
}

/// `$id` or `#id`
fn behind_a_sign(text: &str, names: &[Ident]) -> Option<String> {
    text.match_indices(['$', '#']).find_map(|(at, sign)| {
        let rest = &text[at + 1..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let value = rest[..end].trim_end_matches('.');
        is_value(value, names).then(|| {
            format!("`{sign}{value}` is literal text here: write `<{value}>` for its value")
        })
    })
}

/// `id>`
fn never_opened(text: &str, names: &[Ident]) -> Option<String> {
    text.match_indices('>').find_map(|(close, _)| {
        let before = &text[..close];
        let value = before.rsplit(|c| !is_word(c)).next().unwrap_or_default();
        let is_opened = before[..before.len() - value.len()].ends_with('<');
        (!is_opened && is_value(value, names))
            .then(|| format!("the `>` of `{value}>` was never opened: write `<{value}>`"))
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '.'
}

/// Whether a placeholder of this text would start at one of these names.
fn is_value(text: &str, names: &[Ident]) -> bool {
    roots_of(text).iter().any(|root| names.contains(root))
}

/// Whether a text can be the format after the `:` in `{id:05}`.
fn is_format(text: &str) -> bool {
    let text = text.trim();
    let plain = text.trim_end_matches(['x', 'X', 'o', 'b', 'e', 'E', '?']);
    text.len() - plain.len() <= 2
        && plain.chars().all(|c| c.is_ascii_digit() || "<^>+-#.*$".contains(c))
}
