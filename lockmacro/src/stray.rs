//! Values that stand alone in the attribute, without a name.

use proc_macro2::Ident;
use quote::ToTokens as _;
use syn::parse::{Parse as _, ParseStream};
use syn::{Lit, Result, Token};

use crate::duration::with_unit;
use crate::known::{Known, known};
use crate::placeholder::roots_in;
use crate::words;

/// Reads the values that follow each other, of which there is at least one.
pub(crate) fn values(input: ParseStream) -> Result<Vec<Lit>> {
    let mut values: Vec<Lit> = vec![input.parse()?];
    while argument(&values[0]).is_none() {
        let ahead = input.fork();
        match ahead.parse::<Token![,]>().and_then(|_| Lit::parse(&ahead)) {
            Ok(next) if argument(&next).is_none() && !ahead.peek(Token![=]) => {
                input.parse::<Token![,]>()?;
                values.push(input.parse()?);
            }
            _ => break,
        }
    }
    Ok(values)
}

/// The arguments that were probably meant, and the message for values that stand alone. `rest` is
/// the input behind them. Before them are the text of the key, if it has one, and the arguments
/// that are `written`.
pub(crate) fn refusal(
    values: &[Lit],
    (key, written): (String, &[Ident]),
    rest: ParseStream,
) -> (Vec<&'static str>, String) {
    let known = values.first().and_then(argument);
    if rest.peek(Token![=]) {
        let name = known.map(|(name, ..)| *name);
        let write = name.unwrap_or("..");
        let message = format!("an argument's name stands without quotes: write `{write} = ..`");
        return (vec![name.unwrap_or("key")], message);
    }
    if let Some(&(name, example, _)) = known {
        let message = match name == example {
            true => format!("`{name}` is an argument: write `{name}` without quotes"),
            false => format!(
                "`{name}` is an argument: write `{example}`, with the name outside of quotes"
            ),
        };
        return (vec![name], message);
    }
    let is_written = |name| written.iter().any(|one| one == name);
    let has_key = is_written("key");
    let mut keys: Vec<_> = Some(key).filter(|key| !key.is_empty()).into_iter().collect();
    let texts_before = keys.len();
    let mut times = ["ttl", "wait"].into_iter().filter(|name| !is_written(name));
    let (mut about, mut write) = (Vec::new(), Vec::new());
    for value in values {
        let text = match value {
            Lit::Str(text) => text.value(),
            // A text in the wrong quotes, as the compiler has said already.
            other => other.to_token_stream().to_string().trim_matches('\'').to_owned(),
        };
        let time = with_unit(&text).and_then(|time| Some((times.next()?, time)));
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

/// The argument whose name a value is.
fn argument(value: &Lit) -> Option<&'static Known> {
    let Lit::Str(text) = value else { return None };
    known(&text.value())
}
