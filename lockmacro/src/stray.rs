//! Values that stand alone in the attribute, without a name.

use humantime::parse_duration;
use quote::ToTokens as _;
use syn::parse::{Parse as _, ParseStream};
use syn::{Lit, Result, Token};

use crate::known::KNOWN;
use crate::placeholder::roots_in;
use crate::words;

/// The arguments before the values.
pub(crate) struct Before {
    /// The text of the key, or `None` for another key.
    pub(crate) key: Option<Option<String>>,
    pub(crate) has_ttl: bool,
    pub(crate) has_wait: bool,
}

/// Reads the values that follow each other, of which there is at least one.
pub(crate) fn values(input: ParseStream) -> Result<Vec<Lit>> {
    let mut values: Vec<Lit> = vec![input.parse()?];
    while known(&values[0]).is_none() {
        let ahead = input.fork();
        match ahead.parse::<Token![,]>().and_then(|_| Lit::parse(&ahead)) {
            Ok(next) if known(&next).is_none() && !ahead.peek(Token![=]) => {
                input.parse::<Token![,]>()?;
                values.push(input.parse()?);
            }
            _ => break,
        }
    }
    Ok(values)
}

/// The arguments that were probably meant, and the message for values that stand alone. `rest` is
/// the input behind them.
pub(crate) fn refusal(
    values: &[Lit],
    before: Before,
    rest: ParseStream,
) -> (Vec<&'static str>, String) {
    let known = values.first().and_then(known);
    if rest.peek(Token![=]) {
        let name = known.map_or("..", |(name, _)| name);
        let message = format!("an argument's name stands without quotes: write `{name} = ..`");
        return (vec![known.map_or("key", |(name, _)| name)], message);
    }
    if let Some((name, example)) = known {
        let message = match name == example {
            true => format!("`{name}` is an argument: write `{name}` without quotes"),
            false => format!(
                "`{name}` is an argument: write `{example}`, with the name outside of quotes"
            ),
        };
        return (vec![name], message);
    }
    let has_key = before.key.is_some();
    let mut keys: Vec<_> = before.key.iter().flatten().cloned().collect();
    let texts_before = keys.len();
    let mut times = [("ttl", before.has_ttl), ("wait", before.has_wait)].into_iter();
    let (mut about, mut write) = (Vec::new(), Vec::new());
    for value in values {
        let text = match value {
            Lit::Str(text) => text.value(),
            // A text in the wrong quotes, as the compiler has said already.
            other => other.to_token_stream().to_string().trim_matches('\'').to_owned(),
        };
        let time = [text.clone(), format!("{text}s")];
        let time = time.into_iter().find(|time| parse_duration(time).is_ok());
        let time = time.and_then(|time| Some((times.find(|(_, is_given)| !is_given)?.0, time)));
        if let Some((name, time)) = time {
            about.push(name);
            write.push(format!("`{name} = {time:?}`"));
        } else if !roots_in(&text).is_empty() || !has_key && keys.is_empty() {
            keys.push(text);
        } else if let ([_], Some((meant, mend))) = (values, words::mend(&text)) {
            return (Vec::from_iter(meant), format!("{text:?}: {mend}"));
        } else {
            write.push(format!("an argument's name before `{}`", value.to_token_stream()));
        }
    }
    if keys.len() > texts_before {
        about.push("key");
        write.insert(
            0,
            match keys.as_slice() {
                // The keys before it are no text.
                [text] if has_key => format!("{text:?} into the brackets of `key = [..]`"),
                [text] => format!("`key = {text:?}`"),
                several => format!("`key = {several:?}`"),
            },
        );
    }
    (about, format!("each value stands behind its argument's name: write {}", write.join(", ")))
}

/// The argument whose name a value is, and its example.
fn known(value: &Lit) -> Option<(&'static str, &'static str)> {
    let Lit::Str(text) = value else { return None };
    let known = KNOWN.iter().find(|(known, ..)| *known == text.value());
    known.map(|(name, example, _)| (*name, *example))
}
