//! Expressions that may move an argument before the body gets it.

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens as _;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Macro, Token};

use crate::parse::path::is_place;

/// The parts of expressions that may move an argument. What is not known to be borrowed counts,
/// because an argument that was moved in part cannot become a whole one of the body.
#[derive(Default)]
pub(crate) struct Taken(pub(crate) TokenStream);

impl Taken {
    /// Looks at an expression whose value is borrowed, copied or compared: a place is not moved.
    pub(crate) fn visit_borrowed(&mut self, expr: &Expr) {
        match expr {
            place if is_place(place) => {}
            Expr::Assign(named) => self.visit_borrowed(&named.right),
            other => self.visit_expr(other),
        }
    }
}

impl Visit<'_> for Taken {
    fn visit_expr(&mut self, expr: &Expr) {
        match expr {
            Expr::Lit(_) => {}
            Expr::Reference(reference) => self.visit_borrowed(&reference.expr),
            Expr::Binary(binary) if !matches!(binary.op, BinOp::Add(_)) => {
                self.visit_borrowed(&binary.left);
                self.visit_borrowed(&binary.right);
            }
            Expr::MethodCall(call) => {
                if moves(&call.method) {
                    self.visit_expr(&call.receiver);
                } else {
                    self.visit_borrowed(&call.receiver);
                }
                call.args.iter().for_each(|argument| self.visit_expr(argument));
            }
            Expr::Closure(closure) if closure.capture.is_none() => self.visit_expr(&closure.body),
            // What these are made of is looked at, and all others may move what they mention.
            Expr::Array(_)
            | Expr::Await(_)
            | Expr::Block(_)
            | Expr::Call(_)
            | Expr::Cast(_)
            | Expr::Group(_)
            | Expr::If(_)
            | Expr::Macro(_)
            | Expr::Paren(_)
            | Expr::Try(_)
            | Expr::Unary(_) => visit::visit_expr(self, expr),
            other => self.0.extend(other.to_token_stream()),
        }
    }

    fn visit_macro(&mut self, mac: &Macro) {
        let values = Punctuated::<Expr, Token![,]>::parse_terminated;
        match mac.parse_body_with(values) {
            Ok(values) if is_formatting(mac) => {
                values.iter().for_each(|value| self.visit_borrowed(value));
            }
            _ => self.0.extend(mac.tokens.clone()),
        }
    }
}

/// Whether a macro is `format!` or `format_args!`, which borrow their values.
fn is_formatting(mac: &Macro) -> bool {
    let last = mac.path.segments.last();
    last.is_some_and(|last| last.ident == "format" || last.ident == "format_args")
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
