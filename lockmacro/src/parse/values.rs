//! The values of the attribute's arguments, apart from keys, times and policies.

use proc_macro2::Ident;
use quote::ToTokens as _;
use syn::parse::ParseStream;
use syn::{Error, Expr, ExprLit, ExprPath, Lit, LitStr, Path, Result, Token};

use crate::fix::literal;
use crate::messages;
use crate::messages::names::example;
use crate::parse::item::Function;
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
        let example = example(&name.to_string()).unwrap_or_default();
        return Err(Error::new(name.span(), messages::no_value(name, example)));
    }
    Ok(())
}

/// A word that stands alone.
pub(crate) fn parse_bare(input: ParseStream, name: &Ident) -> Result<bool> {
    if input.peek(Token![=]) {
        return Err(Error::new(name.span(), messages::takes_no_value(name)));
    }
    Ok(true)
}

/// A name to use in the body.
pub(crate) fn parse_binding(value: &Expr, example: &str) -> Result<Ident> {
    let name = syn::parse2(value.to_token_stream());
    name.map_err(|_| Error::new_spanned(value, messages::binding(example)))
}

/// A name, or `[name, name]`
pub(crate) fn parse_fences(value: Expr, example: &str) -> Result<Fences> {
    match value {
        Expr::Array(list) => {
            let names = list.elems.iter();
            let names = names.map(|name| parse_binding(name, "fence = [debit, credit]"));
            names.collect::<Result<_>>().map(Fences::Each)
        }
        name => parse_binding(&name, example).map(Fences::Name),
    }
}

/// A value that is a string literal with text in it.
pub(crate) fn text(value: &Expr, example: &str) -> Result<LitStr> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if !text.value().trim().is_empty() => {
            Ok(text.clone())
        }
        other => Err(Error::new_spanned(other, messages::text(example))),
    }
}

pub(crate) fn parse_manager(value: Expr) -> Result<Expr> {
    match value {
        Expr::Lit(_) => Err(Error::new_spanned(value, messages::MANAGER)),
        other => Ok(other),
    }
}

pub(crate) fn parse_map_err(value: Expr) -> Result<ExprPath> {
    match value {
        Expr::Path(path) => Ok(path),
        other => Err(Error::new_spanned(other, messages::MAP_ERR)),
    }
}

pub(crate) fn parse_name(text: LitStr, function: Option<&Function>) -> Result<LitStr> {
    let name = text.value();
    let names = function.map(Function::template_names).unwrap_or_default();
    let has_values =
        Template::parse(text.clone(), &[]).is_ok_and(|name| name.exprs().next().is_some());
    let message = if name.contains(char::is_control) {
        messages::CONTROL_CHARACTERS
    } else if has_values || literal::mistake(&name, &names, false).is_some() {
        messages::PLACEHOLDERS_IN_NAME
    } else {
        return Ok(text);
    };
    Err(Error::new(text.span(), message))
}

pub(crate) fn parse_runtime(value: Expr) -> Result<Path> {
    match value {
        Expr::Path(path)
            if path.qself.is_none()
                && !path.path.is_ident("lockmacro")
                && path.path.segments.iter().all(|segment| segment.arguments.is_none()) =>
        {
            Ok(runtime::private(path.path))
        }
        other => Err(Error::new_spanned(other, messages::RUNTIME)),
    }
}

/// Reads the settings in the parentheses of a policy: `name`, or `name = value`.
pub(crate) fn settings<'a>(
    settings: impl IntoIterator<Item = &'a Expr>,
    unknown: &str,
    mut set: impl FnMut(&str, Option<&Expr>) -> Result<bool>,
) -> Result<()> {
    let mut faults = Vec::new();
    let mut names = Vec::new();
    for setting in settings {
        let (name, value) = match setting {
            Expr::Assign(assign) => (&*assign.left, Some(&*assign.right)),
            alone => (alone, None),
        };
        let name = name.to_token_stream().to_string();
        match set(&name, value) {
            _ if names.contains(&name) => {
                faults.push(Error::new_spanned(setting, messages::given_twice(&name)));
            }
            Ok(true) => {}
            Ok(false) => faults.push(Error::new_spanned(setting, unknown)),
            Err(error) => faults.push(error),
        }
        names.push(name);
    }
    messages::all(faults)
}
