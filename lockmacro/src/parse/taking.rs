//! Expressions that may move an argument before the body gets it.

use proc_macro2::Ident;
use syn::punctuated::Punctuated;
use syn::{Expr, ExprMethodCall, Macro, Stmt, Token};

use crate::parse::path::is_place;

/// Whether a placeholder may move an argument: `<hash(name)>`, `<order.into_key()>`.
pub(crate) fn is_taking(expr: &Expr) -> bool {
    match expr {
        Expr::Call(call) => call.args.iter().any(|argument| matches!(argument, Expr::Path(_))),
        Expr::MethodCall(call) => {
            call.method.to_string().starts_with("into") || is_taking(&call.receiver)
        }
        _ => false,
    }
}

/// The parts that may move an argument, of an expression whose value is copied or borrowed. A
/// comparison or a value of an argument does not.
pub(crate) fn taking_parts(condition: &Expr) -> Vec<&Expr> {
    let is_moved =
        |call: &ExprMethodCall| call.args.iter().any(|argument| matches!(argument, Expr::Path(_)));
    match condition {
        Expr::Path(_) | Expr::Lit(_) | Expr::Reference(_) => Vec::new(),
        Expr::Macro(call) if call.mac.path.is_ident("matches") => Vec::new(),
        Expr::Paren(paren) => taking_parts(&paren.expr),
        Expr::Unary(unary) => taking_parts(&unary.expr),
        Expr::Cast(cast) => taking_parts(&cast.expr),
        Expr::Field(field) => taking_parts(&field.base),
        Expr::Index(index) => [taking_parts(&index.expr), taking_parts(&index.index)].concat(),
        Expr::Binary(binary) => [taking_parts(&binary.left), taking_parts(&binary.right)].concat(),
        Expr::If(_) | Expr::Block(_) => taken_parts(condition),
        Expr::Call(_) if !is_taking(condition) => Vec::new(),
        Expr::MethodCall(call) if !is_taking(condition) && !is_moved(call) => Vec::new(),
        other => vec![other],
    }
}

/// The same for an expression whose value is moved: a key. What is not known to be borrowed counts,
/// because an argument that was moved in part cannot become a whole one of the body.
pub(crate) fn taken_parts(key: &Expr) -> Vec<&Expr> {
    match key {
        Expr::Lit(_) => Vec::new(),
        Expr::Group(group) => taken_parts(&group.expr),
        Expr::Paren(paren) => taken_parts(&paren.expr),
        Expr::Await(future) => taken_parts(&future.base),
        Expr::Try(result) => taken_parts(&result.expr),
        Expr::Reference(reference) if is_place(&reference.expr) => Vec::new(),
        Expr::Reference(reference) => taken_parts(&reference.expr),
        Expr::Array(list) => list.elems.iter().flat_map(taken_parts).collect(),
        Expr::Closure(closure) if closure.capture.is_none() => taken_parts(&closure.body),
        Expr::Macro(call) if is_format_of_borrowed(&call.mac) => Vec::new(),
        Expr::Call(call) => call.args.iter().flat_map(taken_parts).collect(),
        Expr::MethodCall(call) => {
            let of = match &*call.receiver {
                place if is_place(place) && !moves(&call.method) => Vec::new(),
                other => taken_parts(other),
            };
            of.into_iter().chain(call.args.iter().flat_map(taken_parts)).collect()
        }
        Expr::If(choice) => match (&choice.then_branch.stmts[..], &choice.else_branch) {
            ([Stmt::Expr(then, None)], Some((_, otherwise))) => {
                let branches = [taken_parts(then), taken_parts(otherwise)].concat();
                [taking_parts(&choice.cond), branches].concat()
            }
            _ => vec![key],
        },
        Expr::Block(block) => match &block.block.stmts[..] {
            [Stmt::Expr(end, None)] => taken_parts(end),
            _ => vec![key],
        },
        other => vec![other],
    }
}

/// Whether a macro is `format!` or `format_args!`, of values that it does not move.
fn is_format_of_borrowed(mac: &Macro) -> bool {
    let last = mac.path.segments.last();
    let is_format = last.is_some_and(|last| last.ident == "format" || last.ident == "format_args");
    let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
    is_format && mac.parse_body_with(parser).is_ok_and(|values| values.iter().all(is_borrowed))
}

/// Whether a value in a format is certainly not moved.
fn is_borrowed(value: &Expr) -> bool {
    match value {
        Expr::Assign(named) => is_borrowed(&named.right),
        place if is_place(place) => true,
        other => taken_parts(other).is_empty(),
    }
}

/// Whether a method may move its receiver, to judge by its name: those of `Option`, `Result` and
/// iterators, and conversions.
fn moves(method: &Ident) -> bool {
    const MOVING: [&str; 13] = [
        "and", "chain", "collect", "expect", "filter", "flatten", "into", "map", "ok", "or",
        "unwrap", "xor", "zip",
    ];
    let name = method.to_string();
    let first = name.split('_').next().unwrap_or(&name);
    match first {
        "is" => name.ends_with("_and") || name.ends_with("_or"),
        first => MOVING.contains(&first),
    }
}
