//! Text inside an expression for a key: its placeholders are not filled in.

use proc_macro2::{Ident, Span};
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ExprAssign, ExprBinary, ExprCall, ExprIndex, ExprMethodCall, FieldValue};
use syn::{LitStr, Local, LocalInit, Macro, Pat};

use crate::item::{bindings, bound};
use crate::path::{mentions, variable};
use crate::placeholder::roots_in;
use crate::template::Template;
use crate::text::{arguments, is_conversion, is_format, is_replacement, literal};

/// The first text in an expression that has a placeholder for one of these names: a mistake, unless
/// a function may fill it in.
pub(crate) fn unfilled(expr: &Expr, names: &[Ident]) -> Option<(Span, String)> {
    let names = [names, &bound(expr)].concat();
    let mut texts = Texts { names: &names, whole: expr, unfilled: None };
    texts.visit_expr(expr);
    texts.unfilled
}

/// The message for text in an expression.
pub(crate) fn refusal(text: &str) -> String {
    let example = formatted(text).map(|example| format!(": `{example}`"));
    format!(
        "{text:?} is text in an expression, where placeholders are not filled in: write the whole \
         key as one string, such as `key = \"order:<id>\"`, or format the values in{}",
        example.unwrap_or_default()
    )
}

/// `format!("order:{id}")` for `order:<id>`.
fn formatted(text: &str) -> Option<String> {
    if text.contains(['{', '}']) {
        return None;
    }
    Some(Template::parse(LitStr::new(text, Span::call_site())).ok()?.formatted())
}

struct Texts<'a> {
    /// The function's arguments, and the names in the expression.
    names: &'a [Ident],
    whole: &'a Expr,
    unfilled: Option<(Span, String)>,
}

impl Texts<'_> {
    fn visit_unless_text(&mut self, expr: &Expr) {
        let inner = match expr {
            Expr::Call(call) if is_wrapper(call) => call.args.first().unwrap_or(expr),
            _ => expr,
        };
        if literal(inner).is_none() {
            self.visit_expr(expr);
        }
    }

    /// Whether an expression is a variable that no function gets.
    fn is_kept(&self, expr: &Expr) -> bool {
        variable(expr).is_some_and(|name| !is_handed_on(self.whole, name))
    }
}

impl<'ast> Visit<'ast> for Texts<'_> {
    fn visit_lit_str(&mut self, literal: &'ast LitStr) {
        let text = literal.value();
        let roots = roots_in(&text);
        if roots.iter().any(|root| self.names.contains(root)) {
            self.unfilled.get_or_insert((literal.span(), text));
        }
    }

    fn visit_local(&mut self, local: &'ast Local) {
        if let Some(init) = &local.init
            && !bindings(&local.pat).iter().any(|(name, _)| is_handed_on(self.whole, name))
        {
            self.visit_local_init(init);
        }
    }

    fn visit_expr_assign(&mut self, assign: &'ast ExprAssign) {
        match self.is_kept(&assign.left) {
            true => self.visit_expr(&assign.right),
            false => self.visit_unless_text(&assign.right),
        }
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        if is_conversion(call) || is_wrapper(call) {
            return visit::visit_expr_call(self, call);
        }
        call.args.iter().for_each(|argument| self.visit_unless_text(argument));
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        if !is_replacement(&call.method) {
            self.visit_expr(&call.receiver);
        }
        let is_kept = is_addition(&call.method) && self.is_kept(&call.receiver);
        for argument in &call.args {
            match is_kept || is_alternative(&call.method) {
                true => self.visit_expr(argument),
                false => self.visit_unless_text(argument),
            }
        }
    }

    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        match binary.op {
            BinOp::Add(_) => visit::visit_expr_binary(self, binary),
            BinOp::AddAssign(_) if self.is_kept(&binary.left) => self.visit_expr(&binary.right),
            _ => {
                self.visit_unless_text(&binary.left);
                self.visit_unless_text(&binary.right);
            }
        }
    }

    fn visit_expr_index(&mut self, index: &'ast ExprIndex) {
        self.visit_expr(&index.expr);
        self.visit_unless_text(&index.index);
    }

    // A text that values are compared with.
    fn visit_pat(&mut self, _: &'ast Pat) {}

    fn visit_macro(&mut self, mac: &'ast Macro) {
        let arguments = arguments(mac).unwrap_or_default();
        let is_read = is_format(mac)
            || is_one_of(mac, &["concat", "dbg", "vec"])
            || is_writing(mac) && arguments.first().is_some_and(|target| self.is_kept(target));
        if !is_read {
            return;
        }
        for argument in arguments {
            // A parsed argument does not live as long as the expression: only the result is kept.
            let mut inner = Texts { unfilled: None, ..*self };
            inner.visit_expr(&argument);
            self.unfilled = self.unfilled.take().or(inner.unfilled);
        }
    }
}

/// Whether a function may fill in the text of a variable: one that gets it, or a replacement in it.
fn is_handed_on(whole: &Expr, name: &Ident) -> bool {
    let mut handed_on = HandedOn { name, is_it: false };
    handed_on.visit_expr(whole);
    handed_on.is_it
}

struct HandedOn<'a> {
    name: &'a Ident,
    is_it: bool,
}

impl HandedOn<'_> {
    fn hand_on(&mut self, expr: &Expr) {
        self.is_it |= variable(expr).is_some_and(|name| name == self.name);
    }
}

impl<'ast> Visit<'ast> for HandedOn<'_> {
    fn visit_local_init(&mut self, init: &'ast LocalInit) {
        self.hand_on(&init.expr);
        visit::visit_local_init(self, init);
    }

    fn visit_field_value(&mut self, field: &'ast FieldValue) {
        self.hand_on(&field.expr);
        visit::visit_field_value(self, field);
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        let (one, several) = match expr {
            Expr::Index(index) => (Some(&index.index), None),
            Expr::Call(call) if !is_conversion(call) && !is_wrapper(call) => {
                (None, Some(&call.args))
            }
            Expr::MethodCall(call) => (
                is_replacement(&call.method).then_some(&call.receiver),
                (!is_alternative(&call.method)).then_some(&call.args),
            ),
            _ => (None, None),
        };
        one.into_iter().for_each(|one| self.hand_on(one));
        several.into_iter().flatten().for_each(|argument| self.hand_on(argument));
        visit::visit_expr(self, expr);
    }

    fn visit_macro(&mut self, mac: &'ast Macro) {
        let is_known = is_format(mac) || is_writing(mac) || is_one_of(mac, &["dbg", "vec"]);
        self.is_it |= match arguments(mac).filter(|_| is_known) {
            Some(arguments) => arguments.iter().any(|argument| is_handed_on(argument, self.name)),
            None => mentions(mac.tokens.clone(), self.name),
        };
    }
}

fn is_one_of(mac: &Macro, names: &[&str]) -> bool {
    names.iter().any(|name| mac.path.is_ident(name))
}

fn is_writing(mac: &Macro) -> bool {
    is_one_of(mac, &["write", "writeln"])
}

/// Whether a method adds its argument to a string: `key.push_str("..")`.
fn is_addition(method: &Ident) -> bool {
    ["push_str", "insert_str"].iter().any(|name| method == name)
}

/// Whether a method's arguments may become its value, as they are.
fn is_alternative(method: &Ident) -> bool {
    ["and", "map_or", "or", "then_some", "unwrap_or", "xor"].iter().any(|name| method == name)
}

/// Whether a call only puts a value into an option, a result or an iterator: `Some("..")`.
fn is_wrapper(call: &ExprCall) -> bool {
    let Expr::Path(path) = &*call.func else { return false };
    let last = path.path.segments.last();
    call.args.len() == 1
        && last.is_some_and(|last| {
            ["Some", "Ok", "once", "repeat"].iter().any(|name| last.ident == name)
        })
}
