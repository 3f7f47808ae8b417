//! Text in an expression for a key: placeholders in it would be no placeholders.

use proc_macro2::{Ident, Span};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ExprCall, ExprLit, Lit, LitStr, Macro, Pat, Token};

use crate::template::Template;

/// The string literal that this is, in whatever parentheses and braces and behind whatever `&`.
pub(crate) fn literal(expr: &Expr) -> Option<&ExprLit> {
    match expr {
        Expr::Lit(literal) => Some(literal),
        Expr::Paren(paren) => literal(&paren.expr),
        Expr::Reference(reference) => literal(&reference.expr),
        Expr::Block(block) if block.label.is_none() => match block.block.stmts.as_slice() {
            [syn::Stmt::Expr(expr, None)] => literal(expr),
            _ => None,
        },
        _ => None,
    }
}

/// The text of an expression that makes a string of literals and of nothing else.
pub(crate) fn of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        Expr::Paren(paren) => of(&paren.expr),
        Expr::Reference(reference) => of(&reference.expr),
        Expr::MethodCall(call) if !is_replacement(&call.method) => of(&call.receiver),
        Expr::Call(call) if is_conversion(call) => of(call.args.first()?),
        Expr::Macro(call) if call.mac.path.is_ident("concat") => {
            arguments(&call.mac)?.iter().map(of).collect()
        }
        Expr::Macro(call) if call.mac.path.is_ident("dbg") => {
            match arguments(&call.mac)?.as_slice() {
                [value] => of(value),
                _ => None,
            }
        }
        Expr::Macro(call) if is_format(&call.mac) => match arguments(&call.mac)?.as_slice() {
            [text] => of(text).filter(|text| !text.contains('{')),
            _ => None,
        },
        _ => None,
    }
}

/// The first text in an expression that has a placeholder for one of these names: a mistake, unless
/// it is an argument of a function that may fill it in.
pub(crate) fn unfilled(expr: &Expr, names: &[Ident]) -> Option<(Span, String)> {
    let mut texts = Texts { names: names.to_vec(), unfilled: None };
    texts.visit_expr(expr);
    texts.unfilled
}

struct Texts {
    names: Vec<Ident>,
    unfilled: Option<(Span, String)>,
}

impl Texts {
    fn visit_unless_text(&mut self, expr: &Expr) {
        let inner = match expr {
            Expr::Call(call) if is_wrapper(call) => call.args.first().unwrap_or(expr),
            _ => expr,
        };
        if literal(inner).is_none() {
            self.visit_expr(expr);
        }
    }
}

impl<'ast> Visit<'ast> for Texts {
    fn visit_lit_str(&mut self, literal: &'ast LitStr) {
        let text = literal.value();
        let roots = Template::roots_in(&text);
        if roots.iter().any(|root| self.names.contains(root)) {
            self.unfilled.get_or_insert((literal.span(), text));
        }
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        if is_conversion(call) || is_wrapper(call) {
            return visit::visit_expr_call(self, call);
        }
        call.args.iter().for_each(|argument| self.visit_unless_text(argument));
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if !is_replacement(&call.method) {
            self.visit_expr(&call.receiver);
        }
        for argument in &call.args {
            match is_alternative(&call.method) {
                true => self.visit_expr(argument),
                false => self.visit_unless_text(argument),
            }
        }
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if let BinOp::Add(_) = binary.op {
            return visit::visit_expr_binary(self, binary);
        }
        self.visit_unless_text(&binary.left);
        self.visit_unless_text(&binary.right);
    }

    fn visit_expr_index(&mut self, index: &'ast syn::ExprIndex) {
        self.visit_expr(&index.expr);
        self.visit_unless_text(&index.index);
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        let outer = self.names.len();
        closure.inputs.iter().for_each(|input| self.visit_pat(input));
        self.visit_expr(&closure.body);
        self.names.truncate(outer);
    }

    fn visit_pat(&mut self, pat: &'ast Pat) {
        match pat {
            Pat::Ident(pat) => self.names.push(pat.ident.clone()),
            // What a text is compared with.
            Pat::Lit(_) => return,
            _ => {}
        }
        visit::visit_pat(self, pat);
    }

    fn visit_macro(&mut self, mac: &'ast Macro) {
        let is_known = ["concat", "dbg", "vec"].iter().any(|name| mac.path.is_ident(name));
        if !is_format(mac) && !is_known {
            return;
        }
        for argument in arguments(mac).unwrap_or_default() {
            // What is found is told by its span and text alone.
            let mut inner = Texts { names: self.names.clone(), unfilled: None };
            inner.visit_expr(&argument);
            self.unfilled = self.unfilled.take().or(inner.unfilled);
        }
    }
}

fn is_format(mac: &Macro) -> bool {
    let last = mac.path.segments.last();
    last.is_some_and(|last| last.ident == "format" || last.ident == "format_args")
}

fn is_replacement(method: &Ident) -> bool {
    method == "replace" || method == "replacen"
}

/// Whether a method's arguments may become its value, as they are.
fn is_alternative(method: &Ident) -> bool {
    ["and", "map_or", "or", "then_some", "unwrap_or", "xor"].iter().any(|name| method == name)
}

/// Whether this only puts a value into an option, a result or an iterator: `Some("..")`.
fn is_wrapper(call: &ExprCall) -> bool {
    let Expr::Path(path) = &*call.func else { return false };
    let last = path.path.segments.last();
    call.args.len() == 1
        && last.is_some_and(|last| {
            ["Some", "Ok", "once", "repeat"].iter().any(|name| last.ident == name)
        })
}

/// Whether this only makes a key or another string of a string: `String::from("..")`.
fn is_conversion(call: &ExprCall) -> bool {
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

fn arguments(mac: &Macro) -> Option<Vec<Expr>> {
    let arguments = mac.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated).ok()?;
    let ungrouped = arguments.into_iter().map(|mut argument| {
        crate::path::ungroup(&mut argument);
        argument
    });
    Some(ungrouped.collect())
}

/// What to write instead of a text that would be the key.
pub(crate) fn refusal(text: &str, before: &str) -> String {
    format!(
        "placeholders are not filled in here, so every call would have the same key: write the \
         string alone, `{before}{text:?}`, with `<<` for a literal `<`"
    )
}

/// What to write instead of a text in an expression.
pub(crate) fn unfilled_refusal(text: &str) -> String {
    format!(
        "{text:?} is text in an expression, where placeholders are not filled in: write the whole \
         key as one string, or format the values in"
    )
}
