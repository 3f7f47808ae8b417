//! The values of the attribute's arguments, apart from keys, times and policies.

use proc_macro2::Ident;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprPath, LitStr, Path, Result, Token, bracketed, token};

use crate::known::example;
use crate::runtime;
use crate::slips::unquoted;
use crate::template::Template;

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
        let message = format!("`{name}` has no value: write `{}`", example(name));
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
                example(name)
            ),
        )),
    }
}

/// `= name`, or `= [name, name]`
pub(crate) fn parse_fences(input: ParseStream, name: &Ident) -> Result<Fences> {
    let list = input.fork();
    if list.parse::<Token![=]>().is_err() || !list.peek(token::Bracket) {
        return parse_binding(input, name).map(Fences::Name);
    }
    equals(input, name)?;
    let (start, ahead) = (input.span(), input.fork());
    match fence_names(&ahead) {
        Ok(_) => fence_names(input).map(Fences::Each),
        Err(_) => Err(Error::new(
            start,
            "`fence` gives names to use in the body: write one for each key, as in \
             `fence = [debit, credit]`",
        )),
    }
}

/// `[name, name]`
fn fence_names(input: ParseStream) -> Result<Vec<Ident>> {
    let names;
    bracketed!(names in input);
    Ok(Punctuated::<Ident, Token![,]>::parse_terminated(&names)?.into_iter().collect())
}

pub(crate) fn parse_message(value: Expr) -> Result<Template> {
    match value {
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. })
            if text.value().trim().is_empty() =>
        {
            Err(Error::new(
                text.span(),
                "the message is empty: write one such as `message = \"order <id> is being \
                 audited\"`, or remove `message`",
            ))
        }
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Template::parse(text),
        other => Err(Error::new_spanned(
            other,
            "a message is a string literal, with placeholders for values: write \
             `message = \"order <id> is being audited\"`",
        )),
    }
}

pub(crate) fn parse_note(value: Expr) -> Result<Template> {
    match value {
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Template::parse(text),
        other => Err(Error::new_spanned(
            other,
            "a note is a string literal, with placeholders for values: write \
             `holder_note = \"<user.name>\"`",
        )),
    }
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
    if let Some(error) = unquoted::<ExprPath>(&value, "map_err") {
        return Err(error);
    }
    match value {
        Expr::Path(path) => Ok(path),
        other => Err(Error::new_spanned(
            other,
            "`map_err` takes the path of a `fn(LockError) -> E` that makes the function's error: \
             write `map_err = OrderError::from_lock`",
        )),
    }
}

pub(crate) fn parse_name(value: Expr) -> Result<LitStr> {
    match value {
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. })
            if !text.value().trim().is_empty() =>
        {
            match text.value().contains(char::is_control) {
                false => Ok(text),
                true => Err(Error::new(
                    text.span(),
                    "a name has no control characters: write one such as `name = \
                     \"orders.audit\"`",
                )),
            }
        }
        other => Err(Error::new_spanned(
            other,
            "the name that logs, metrics and stored calls show is a string literal: write \
             `name = \"orders.audit\"`",
        )),
    }
}

pub(crate) fn parse_runtime(value: Expr) -> Result<Path> {
    if let Some(error) = unquoted::<Path>(&value, "crate") {
        return Err(error);
    }
    match value {
        Expr::Path(path) if path.qself.is_none() => {
            let is_plain = |segment: &syn::PathSegment| segment.arguments.is_none();
            if path.path.is_ident("lockmacro") {
                let message = "`lockmacro` is the attribute alone: write the path of the runtime, \
                               as in `crate = my_crate::lockmacro_runtime`";
                return Err(Error::new_spanned(path, message));
            }
            if path.path.segments.iter().all(is_plain) {
                return Ok(runtime::of_this_version(path.path));
            }
            runtime_expected(&path)
        }
        other => runtime_expected(&other),
    }
}

fn runtime_expected(value: &impl quote::ToTokens) -> Result<Path> {
    let message = "this is no path of the runtime: write one, as in \
                   `crate = my_crate::lockmacro_runtime`";
    Err(Error::new_spanned(value, message))
}

pub(crate) fn parse_policy(value: Expr) -> Result<ExprPath> {
    if let Some(error) = unquoted::<ExprPath>(&value, "policy") {
        return Err(error);
    }
    match value {
        Expr::Path(path) => Ok(path),
        other => Err(Error::new_spanned(
            other,
            "a policy is a constant with a name: write `const ORDERS: LockPolicy = ..;` beside the \
             functions, and `policy = ORDERS` here",
        )),
    }
}
