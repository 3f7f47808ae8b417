//! Expressions for a key that are text alone, in various notations.

use proc_macro2::Ident;
use syn::punctuated::Punctuated;
use syn::{Expr, ExprCall, ExprLit, Lit, Macro, Token};

use crate::path::{bare, ungroup};

/// The literal inside parentheses and braces and behind `&`.
pub(crate) fn literal(expr: &Expr) -> Option<&ExprLit> {
    match bare(expr) {
        Expr::Lit(literal) => Some(literal),
        Expr::Block(block) if block.label.is_none() => match block.block.stmts.as_slice() {
            [syn::Stmt::Expr(expr, None)] => literal(expr),
            _ => None,
        },
        _ => None,
    }
}

/// The text of an expression that makes a string of literals only.
pub(crate) fn of(expr: &Expr) -> Option<String> {
    match bare(expr) {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        Expr::MethodCall(call) if !is_replacement(&call.method) => of(&call.receiver),
        Expr::Call(call) if is_conversion(call) => of(call.args.first()?),
        Expr::Macro(call) if call.mac.path.is_ident("concat") => {
            arguments(&call.mac)?.iter().map(of).collect()
        }
        Expr::Macro(call) => match arguments(&call.mac)?.as_slice() {
            [value] if call.mac.path.is_ident("dbg") => of(value),
            [text] if is_format(&call.mac) => of(text).filter(|text| !text.contains('{')),
            _ => None,
        },
        _ => None,
    }
}

pub(crate) fn is_format(mac: &Macro) -> bool {
    let last = mac.path.segments.last();
    last.is_some_and(|last| last.ident == "format" || last.ident == "format_args")
}

pub(crate) fn is_replacement(method: &Ident) -> bool {
    ["replace", "replacen", "replace_range"].iter().any(|name| method == name)
}

/// Whether a call only converts a string to a key or another string: `String::from("..")`.
pub(crate) fn is_conversion(call: &ExprCall) -> bool {
    let Expr::Path(path) = &*call.func else { return false };
    let mut names = path.path.segments.iter().rev().map(|segment| segment.ident.to_string());
    let (function, of) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
    call.args.len() == 1
        && ["from", "new", "Borrowed", "Owned", "to_string", "to_owned", "into"]
            .contains(&function.as_str())
        && [
            "String", "LockKey", "Cow", "Box", "Arc", "Rc", "str", "ToString", "ToOwned", "From",
            "Into",
        ]
        .contains(&of.as_str())
}

pub(crate) fn arguments(mac: &Macro) -> Option<Vec<Expr>> {
    let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
    let mut arguments: Vec<_> = mac.parse_body_with(parser).ok()?.into_iter().collect();
    arguments.iter_mut().for_each(ungroup);
    Some(arguments)
}

/// The message for a text whose placeholders are not filled in.
pub(crate) fn refusal(text: &str, before: &str) -> String {
    format!(
        "placeholders are not filled in here, so every call would have the same key: write the \
         string alone, `{before}{text:?}`, with `<<` for a literal `<`"
    )
}
