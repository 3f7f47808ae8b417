//! The values of the attribute's arguments, apart from keys, times and policies.

use proc_macro2::{Group, Ident};
use syn::parse::{ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprLit, ExprPath, Lit, LitStr, Path, Result, Token, token};

use crate::fix::names::example;
use crate::fix::slips::unquoted;
use crate::parse::runtime;
use crate::parse::template::Template;

/// The body's names for the fences.
pub(crate) enum Fences {
    /// `fence = name`: the fence of one key, or a `Vec` with the fences of `keys(..)`.
    Name(Ident),
    /// `fence = [debit, credit]`: a name for each of several keys.
    Each(Vec<Ident>),
}

impl Fences {
    pub(crate) fn names(&self) -> &[Ident] {
        match self {
            Fences::Name(name) => std::slice::from_ref(name),
            Fences::Each(names) => names,
        }
    }
}

/// `=` and a value after it.
pub(crate) fn equals(input: ParseStream, name: &Ident) -> Result<()> {
    if input.parse::<Token![=]>().is_err() || input.is_empty() || input.peek(Token![,]) {
        let message = format!(
            "`{name}` has no value: write `{}`",
            example(&name.to_string()).unwrap_or_default()
        );
        return Err(Error::new(name.span(), message));
    }
    Ok(())
}

/// A word that stands alone.
pub(crate) fn parse_bare(input: ParseStream, name: &Ident) -> Result<bool> {
    if input.peek(Token![=]) {
        let message = format!("`{name}` takes no value: write `{name}` alone, or leave it out");
        return Err(Error::new(name.span(), message));
    }
    Ok(true)
}

/// `= name`
pub(crate) fn parse_binding(input: ParseStream, name: &Ident) -> Result<Ident> {
    equals(input, name)?;
    let start = input.span();
    match input.parse() {
        Ok(binding) if input.is_empty() || input.peek(Token![,]) => Ok(binding),
        _ => Err(Error::new(
            start,
            format!(
                "`{name}` gives a name to use in the body: write one, as in `{}`",
                example(&name.to_string()).unwrap_or_default()
            ),
        )),
    }
}

/// `= name`, or `= [name, name]`
pub(crate) fn parse_fences(input: ParseStream, name: &Ident) -> Result<Fences> {
    if !input.peek(Token![=]) || !input.peek2(token::Bracket) {
        return parse_binding(input, name).map(Fences::Name);
    }
    equals(input, name)?;
    let list: Group = input.parse()?;
    let names = Punctuated::<Ident, Token![,]>::parse_terminated.parse2(list.stream());
    let message = "`fence` gives names to use in the body: write one for each key, as in \
                   `fence = [debit, credit]`";
    names.map_or_else(
        |_| Err(Error::new(list.span_open(), message)),
        |names| Ok(Fences::Each(names.into_iter().collect())),
    )
}

/// The text of a value that is a string literal.
pub(crate) fn text(value: Expr, message: &str) -> Result<LitStr> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text),
        other => Err(Error::new_spanned(other, message)),
    }
}

/// A path without quotes.
fn path(value: Expr, argument: &str, message: &str) -> Result<ExprPath> {
    match (unquoted::<ExprPath>(&value, argument), value) {
        (Some(error), _) => Err(error),
        (None, Expr::Path(path)) => Ok(path),
        (None, other) => Err(Error::new_spanned(other, message)),
    }
}

pub(crate) fn parse_message(value: Expr) -> Result<Template> {
    let text = text(
        value,
        "a message is a string literal, with placeholders for values: write `message = \"order \
         <id> is being audited\"`",
    )?;
    if text.value().trim().is_empty() {
        let message = "the message is empty: write one such as `message = \"order <id> is being \
                       audited\"`, or remove `message`";
        return Err(Error::new(text.span(), message));
    }
    Template::parse(text)
}

pub(crate) fn parse_note(value: Expr) -> Result<Template> {
    Template::parse(text(
        value,
        "a note is a string literal, with placeholders for values: write `holder_note = \
         \"<user.name>\"`",
    )?)
}

pub(crate) fn parse_manager(value: Expr) -> Result<Expr> {
    match value {
        Expr::Lit(_) => Err(Error::new_spanned(
            value,
            "the manager is an expression giving `&LockManager`: write `manager = self.locks`",
        )),
        other => Ok(other),
    }
}

pub(crate) fn parse_map_err(value: Expr) -> Result<ExprPath> {
    path(
        value,
        "map_err",
        "`map_err` takes the path of a `fn(LockError) -> E` that makes the function's error: write \
         `map_err = OrderError::from_lock`",
    )
}

pub(crate) fn parse_name(value: Expr) -> Result<LitStr> {
    let message = "the name that logs, metrics and stored calls show is a string literal: write \
                   `name = \"orders.audit\"`";
    let text = text(value, message)?;
    let message = match text.value() {
        name if name.trim().is_empty() => message,
        name if name.contains(char::is_control) => {
            "a name has no control characters: write one such as `name = \"orders.audit\"`"
        }
        _ => return Ok(text),
    };
    Err(Error::new(text.span(), message))
}

pub(crate) fn parse_runtime(value: Expr) -> Result<Path> {
    let message = "this is no path of the runtime: write one, as in `crate = \
                   my_crate::lockmacro_runtime`";
    let path = path(value, "crate", message)?;
    let is_plain = path.path.segments.iter().all(|segment| segment.arguments.is_none());
    let message = if path.path.is_ident("lockmacro") {
        "`lockmacro` is the attribute alone: write the path of the runtime, as in `crate = \
             my_crate::lockmacro_runtime`"
    } else if path.qself.is_none() && is_plain {
        return Ok(runtime::private(path.path));
    } else {
        message
    };
    Err(Error::new_spanned(path, message))
}
