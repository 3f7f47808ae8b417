//! Keys that are chosen by an `if`, a `match` or a block, whose last values are keys.

use proc_macro2::TokenStream;
use syn::{Block, Expr, ExprCall, ExprMacro, Result, Stmt};

/// An expression with branches, and a key of type `K` for each of them.
pub(crate) struct Branches<K> {
    pub(crate) expr: Expr,
    /// The last expression of each branch, in the order of [`for_each_end`].
    pub(crate) ends: Vec<K>,
}

impl<K> Branches<K> {
    /// Parses the ends of the branches, each by `key`.
    pub(crate) fn parse(mut expr: Expr, key: impl Fn(Expr) -> Result<K>) -> Result<Self> {
        let mut ends = Vec::new();
        for_each_end(&mut expr, &mut |end| ends.push(key(end.clone())));
        let ends = ends.into_iter().collect::<Result<_>>()?;
        Ok(Self { expr, ends })
    }

    /// The expression without the ends whose keys are `omitted`.
    pub(crate) fn without(&self, omitted: impl Fn(&K) -> bool) -> Expr {
        let mut expr = self.expr.clone();
        let mut keys = self.ends.iter();
        for_each_end(&mut expr, &mut |end| {
            if keys.next().is_some_and(&omitted) {
                *end = Expr::Verbatim(TokenStream::new());
            }
        });
        expr
    }

    /// The expression with a key at each end, as `key` prints it.
    pub(crate) fn print(&self, key: impl Fn(&K) -> TokenStream) -> Expr {
        let mut expr = self.expr.clone();
        let mut keys = self.ends.iter();
        for_each_end(&mut expr, &mut |end| {
            if let Some(one) = keys.next()
                && !is_no_value(end)
            {
                *end = Expr::Verbatim(key(one));
            }
        });
        expr
    }
}

/// Calls `found` for each expression that may be the value of the whole expression.
fn for_each_end(expr: &mut Expr, found: &mut impl FnMut(&mut Expr)) {
    match expr {
        Expr::Paren(paren) => for_each_end(&mut paren.expr, found),
        Expr::Block(block) if block.label.is_none() => for_the_end(&mut block.block, found),
        Expr::Unsafe(block) => for_the_end(&mut block.block, found),
        Expr::If(choice) => {
            for_the_end(&mut choice.then_branch, found);
            if let Some((_, otherwise)) = &mut choice.else_branch {
                for_each_end(otherwise, found);
            }
        }
        Expr::Match(choice) => {
            choice.arms.iter_mut().for_each(|arm| for_each_end(&mut arm.body, found));
        }
        end => found(end),
    }
}

fn for_the_end(block: &mut Block, found: &mut impl FnMut(&mut Expr)) {
    let Some(last) = block.stmts.last_mut() else { return };
    if let Stmt::Macro(call) = last
        && call.semi_token.is_none()
    {
        let call = ExprMacro { attrs: call.attrs.clone(), mac: call.mac.clone() };
        *last = Stmt::Expr(Expr::Macro(call), None);
    }
    if let Stmt::Expr(end, None) = last {
        for_each_end(end, found);
    }
}

/// Whether an expression never has a value, so that there is nothing to make a key of.
fn is_no_value(expr: &Expr) -> bool {
    match expr {
        Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) | Expr::Loop(_) => true,
        Expr::Paren(paren) => is_no_value(&paren.expr),
        Expr::Macro(call) => call.mac.path.segments.last().is_some_and(|last| {
            ["panic", "todo", "unimplemented", "unreachable"].iter().any(|name| last.ident == name)
        }),
        Expr::Call(call) => is_end_of_process(call),
        _ => false,
    }
}

/// `std::process::exit(code)`, `process::abort()`, `exit(code)` or `abort()`
fn is_end_of_process(call: &ExprCall) -> bool {
    let Expr::Path(path) = &*call.func else { return false };
    let mut names = path.path.segments.iter().rev().map(|segment| &segment.ident);
    let arguments = match names.next() {
        Some(name) if name == "exit" => 1,
        Some(name) if name == "abort" => 0,
        _ => return false,
    };
    call.args.len() == arguments && names.next().is_none_or(|module| module == "process")
}
