//! Text inside an expression for a key: its placeholders are not filled in.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, ExprAssign, ExprBinary, ExprCall, ExprMethodCall, ExprPath, LitStr};
use syn::{Local, Macro, Pat, Stmt};

use crate::path::variable;
use crate::placeholder::roots_in;
use crate::template::Template;
use crate::text::{arguments, is_conversion, is_format, is_replacement, literal};

/// The first text in an expression that has a placeholder for one of these names: a mistake, unless
/// a function may fill it in.
pub(crate) fn unfilled(expr: &Expr, names: &[Ident]) -> Option<(Span, String)> {
    let mut handed_on = HandedOn(Vec::new());
    handed_on.visit_expr(expr);
    let mut texts = Texts { names: names.to_vec(), handed_on: handed_on.0, unfilled: None };
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

struct Texts {
    names: Vec<Ident>,
    /// The variables whose text a function may fill in.
    handed_on: Vec<Ident>,
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

    /// Whether an expression is a variable that is used for the key only.
    fn is_kept(&self, expr: &Expr) -> bool {
        variable(expr).is_some_and(|name| !self.handed_on.contains(name))
    }
}

impl<'ast> Visit<'ast> for Texts {
    fn visit_lit_str(&mut self, literal: &'ast LitStr) {
        let text = literal.value();
        let roots = roots_in(&text);
        if roots.iter().any(|root| self.names.contains(root)) {
            self.unfilled.get_or_insert((literal.span(), text));
        }
    }

    fn visit_local(&mut self, local: &'ast Local) {
        self.visit_pat(&local.pat);
        let mut bound = Bound(Vec::new());
        bound.visit_pat(&local.pat);
        if let Some(init) = &local.init
            && !bound.0.iter().any(|name| self.handed_on.contains(name))
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
            // A text that values are compared with.
            Pat::Lit(_) => return,
            _ => {}
        }
        visit::visit_pat(self, pat);
    }

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
            let (names, handed_on) = (self.names.clone(), self.handed_on.clone());
            let mut inner = Texts { names, handed_on, unfilled: None };
            inner.visit_expr(&argument);
            self.unfilled = self.unfilled.take().or(inner.unfilled);
        }
    }
}

/// The names that a pattern binds.
struct Bound(Vec<Ident>);

impl<'ast> Visit<'ast> for Bound {
    fn visit_pat_ident(&mut self, pat: &'ast syn::PatIdent) {
        self.0.push(pat.ident.clone());
        visit::visit_pat_ident(self, pat);
    }
}

/// The variables that are used for more than to build a string and to be its value: a function that
/// takes one, or a replacement in it, may fill in the placeholders.
struct HandedOn(Vec<Ident>);

impl HandedOn {
    fn visit_unless_variable(&mut self, expr: &Expr) {
        if variable(expr).is_none() {
            self.visit_expr(expr);
        }
    }

    /// The names in a text such as `"audit of {key}"`.
    fn visit_format(&mut self, text: &str) {
        let names = text.split('{').skip(1).filter_map(|rest| {
            let name = rest.split(|c: char| c != '_' && !c.is_alphanumeric()).next()?;
            syn::parse_str::<Ident>(name).ok()
        });
        self.0.extend(names);
    }

    fn visit_names(&mut self, tokens: TokenStream) {
        for tree in tokens {
            match tree {
                TokenTree::Ident(name) => self.0.push(name),
                TokenTree::Group(group) => self.visit_names(group.stream()),
                TokenTree::Literal(format) => self.visit_format(&format.to_string()),
                TokenTree::Punct(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for HandedOn {
    fn visit_expr_path(&mut self, path: &'ast ExprPath) {
        self.0.extend(path.path.get_ident().cloned());
    }

    fn visit_block(&mut self, block: &'ast Block) {
        for stmt in &block.stmts {
            match stmt {
                Stmt::Expr(value, None) => self.visit_unless_variable(value),
                other => self.visit_stmt(other),
            }
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        self.visit_pat(&arm.pat);
        self.visit_unless_variable(&arm.body);
    }

    fn visit_expr_assign(&mut self, assign: &'ast ExprAssign) {
        self.visit_unless_variable(&assign.left);
        self.visit_expr(&assign.right);
    }

    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        match binary.op {
            BinOp::Add(_) | BinOp::AddAssign(_) => self.visit_unless_variable(&binary.left),
            _ => self.visit_expr(&binary.left),
        }
        self.visit_expr(&binary.right);
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        match is_conversion(call) || is_wrapper(call) {
            true => call.args.iter().for_each(|argument| self.visit_unless_variable(argument)),
            false => visit::visit_expr_call(self, call),
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        match is_replacement(&call.method) {
            true => self.visit_expr(&call.receiver),
            false => self.visit_unless_variable(&call.receiver),
        }
        call.args.iter().for_each(|argument| match is_alternative(&call.method) {
            true => self.visit_unless_variable(argument),
            false => self.visit_expr(argument),
        });
    }

    fn visit_macro(&mut self, mac: &'ast Macro) {
        let is_known = is_format(mac) || is_writing(mac) || is_one_of(mac, &["dbg", "vec"]);
        match arguments(mac).filter(|_| is_known) {
            Some(arguments) => {
                arguments.iter().for_each(|argument| self.visit_unless_variable(argument));
            }
            None => self.visit_names(mac.tokens.clone()),
        }
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
