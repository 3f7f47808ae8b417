//! Literal text in a template that looks like a placeholder of another kind.

use proc_macro2::Ident;

use crate::messages;
use crate::parse::placeholder::roots_of;

/// The mistake in a literal that was probably meant as a placeholder for one of `names`. Text that
/// is the whole of a key would be the same for every call, so that less is enough in it.
pub(crate) fn mistake(text: &str, names: &[Ident], is_whole_key: bool) -> Option<String> {
    in_braces(text, names).or_else(|| named(text, names, is_whole_key))
}

/// `%s`, `%05d`, `%@`, `%1$s`, `%(id)s`, `#p0`, `#root`, `$1`, `?1` or `args[0]`, which no key has
/// as text, and `?` in the whole text of a key.
pub(crate) fn numbered(text: &str, is_whole_key: bool) -> Option<String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.match_indices(['%', '#', '$', '?', '[']).find_map(|(at, sign)| {
        let before = &text[..at];
        let after = &text[at + 1..];
        let is_start = !before.ends_with(|c: char| c.is_alphanumeric() || c == '%');
        let word = first_word(after);
        let list = &before[before.trim_end_matches(is_word).len()..];
        let is_placeholder = match sign {
            "%" => {
                let kind =
                    after.trim_start_matches(|c: char| c.is_ascii_digit() || "-+.".contains(c));
                let is_kind = ["d", "i", "s", "u", "v"].contains(&first_word(kind))
                    || is_whole_key && ["f", "x"].contains(&first_word(kind));
                let is_numbered = kind.starts_with('$') && kind.len() < after.len();
                is_start && (is_kind || is_numbered || kind.starts_with(['(', '@']))
            }
            "[" => {
                let is_list = ["args", "arguments", "params"].contains(&list);
                is_list && is_number(word) && after[word.len()..].starts_with(']')
            }
            "#" => word == "root" || word.strip_prefix(['p', 'a']).is_some_and(is_number),
            // `{id:?}` is a placeholder of its own.
            "?" if word.is_empty() => is_start && is_whole_key && !after.starts_with('}'),
            _ => is_number(word),
        };
        let shown = if sign == "[" { format!("{list}[{word}]") } else { format!("{sign}{word}") };
        is_placeholder.then(|| messages::literal_argument(shown, "id"))
    })
}

/// `{id}`, `{.id}`, `{}`, `{0}`, `{id:05}`, `#{id}` or `${id}`
fn in_braces(text: &str, names: &[Ident]) -> Option<String> {
    text.match_indices('{').find_map(|(open, _)| {
        let inner = &text[open + 1..];
        let inner = &inner[..inner.find('}')?];
        // The last `:`, because a method call may have `::<T>`.
        let value = match inner.rsplit_once(':') {
            Some((value, format)) if is_format(format) => value.trim(),
            _ => inner.trim(),
        };
        if value.bytes().all(|b| b.is_ascii_digit()) {
            let example = names.iter().find(|name| *name != "self").or(names.first())?;
            return Some(messages::literal_argument(format!("{{{inner}}}"), example));
        }
        let value = value.trim_start_matches('.');
        let sign = text[..open].chars().last().filter(|sign| "$#".contains(*sign));
        let or = if sign.is_none() { messages::or_in_braces(value) } else { String::new() };
        let shown = format!("{}{{{inner}}}", sign.map(String::from).unwrap_or_default());
        is_value(value, names).then(|| messages::literal_value(shown, value) + &or)
    })
}

/// `$id`, `#id` or `id>`. In the whole text of a key nearly any sign before the name is enough,
/// because other languages mark it in too many ways: `:id`, `: id`, `*id`, `'id'`, `‹id›`,
/// `{% id %}`, `&lt;id&gt;`. A name at the start of the text is a word of it, as in `order:audit`,
/// and so is one behind another word, as in `paid-order`, `a->b` or `audit of order`.
fn named(text: &str, names: &[Ident], is_whole_key: bool) -> Option<String> {
    let mut before = None;
    text.split_inclusive(|c| !is_word(c) && c != '.').find_map(|piece| {
        let value = piece.trim_end_matches(|c| !is_word(c));
        let after = piece.chars().last();
        let sign = before;
        // In a key blanks do not separate a name from the sign before it.
        if !is_whole_key || !piece.trim().is_empty() {
            before = after;
        }
        let has = |signs: &str| sign.is_some_and(|sign| signs.contains(sign));
        let is_meant = has("$#")
            || is_whole_key
                && sign.is_some_and(|sign| !"->".contains(sign) && !sign.is_whitespace())
            || after == Some('>') && sign != Some('<');
        let shown = sign.filter(|_| has("$#@%")).map(String::from).unwrap_or_default();
        (is_meant && is_value(value, names))
            .then(|| messages::literal_value(format!("{shown}{value}"), value))
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn first_word(text: &str) -> &str {
    &text[..text.find(|c| !is_word(c)).unwrap_or(text.len())]
}

/// Whether a placeholder of this text would start at one of these names, or at a field of `self`.
fn is_value(text: &str, names: &[Ident]) -> bool {
    let is_field = text.starts_with("self.");
    roots_of(text).iter().any(|root| is_field || names.contains(root))
}

/// Whether a text can be the format after the `:` in `{id:05}`.
fn is_format(text: &str) -> bool {
    let text = text.trim();
    let plain = text.trim_end_matches(['x', 'X', 'o', 'b', 'e', 'E', '?']);
    text.len() - plain.len() <= 2
        && plain.chars().all(|c| c.is_ascii_digit() || "<^>+-#.*$".contains(c))
}
