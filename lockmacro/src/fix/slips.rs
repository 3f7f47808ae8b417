//! Words that were probably meant: other cases, quotes and typing mistakes.

use syn::ext::IdentExt as _;
use syn::parse::Parse;
use syn::{Error, Expr, ExprLit, Lit};

/// The message for a value that is one of these words, but for quotes, case or a typing mistake. A
/// word may show its arguments, as in `fallback(path)`.
pub(crate) fn near(value: &Expr, argument: &str, known: &[&str]) -> Option<String> {
    let word = word(value)?;
    let name = |known: &str| known.split('(').next().unwrap_or_default().to_owned();
    let near = known.iter().find(|near| {
        let near = name(near);
        slips(&word, &near) <= (near.len() / 5).max(1)
    })?;
    Some(match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if word == name(near) => {
            let text = text.value();
            without_quotes(argument, if text.contains('(') { &text } else { near })
        }
        _ if word == name(near) => format!("write it as `{argument} = {near}`"),
        _ => format!("unknown value `{word}`: did you mean `{argument} = {near}`?"),
    })
}

/// The word that a value is: of `skip`, `Skip`, `OnBusy::Skip`, `skip(..)`, `"skip"` and `true`.
pub(crate) fn word(value: &Expr) -> Option<String> {
    match value {
        Expr::Path(path) if path.qself.is_none() => {
            let mut names = path.path.segments.iter().rev().map(|segment| &segment.ident);
            let last = names.next()?;
            let of = names.next();
            let is_policy = of.is_none_or(|of| of == "OnBusy" || of == "OnLost");
            is_policy.then(|| last.unraw().to_string())
        }
        Expr::Call(call) => word(&call.func),
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            Some(text.value().split('(').next()?.trim().to_owned())
        }
        Expr::Lit(ExprLit { lit: Lit::Bool(truth), .. }) => Some(truth.value.to_string()),
        _ => None,
    }
}

/// The error for a value in quotes that is right without them.
pub(crate) fn unquoted<T: Parse>(value: &Expr, argument: &str) -> Option<Error> {
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = value else { return None };
    text.parse::<T>().ok()?;
    Some(Error::new(text.span(), without_quotes(argument, &text.value())))
}

fn without_quotes(argument: &str, value: &str) -> String {
    format!("write it without quotes: `{argument} = {value}`")
}

/// `min-hold`, `minHold` and `MIN_HOLD` are one word.
pub(crate) fn is_word(one: &str, other: &str) -> bool {
    plain(one) == plain(other)
}

/// Whether a name has another one as a whole part: `ttl_ms` and `maxTtl` have `ttl`.
pub(crate) fn has_part(name: &str, part: &str) -> bool {
    let mut snake = String::from("_");
    for c in name.chars() {
        if c.is_uppercase() && snake.ends_with(char::is_lowercase) {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    (snake.replace('-', "_") + "_").contains(&format!("_{part}_"))
}

fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// The number of typing mistakes between two words. Two swapped letters are one mistake.
pub(crate) fn slips(one: &str, other: &str) -> usize {
    strsim::osa_distance(&plain(one), &plain(other))
}
