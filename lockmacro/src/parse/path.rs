//! What expressions, types and tokens name, and the invisible groups of `macro_rules!` variables.

use std::mem;

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::ext::IdentExt as _;
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, ExprLit, Stmt, Type};

/// Whether an expression is this name and nothing else.
pub(crate) fn is_path(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::Path(path) if path.path.is_ident(name))
}

/// The expression inside parentheses and behind `&`.
pub(crate) fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Paren(paren) => bare(&paren.expr),
        Expr::Reference(reference) => bare(&reference.expr),
        other => other,
    }
}

/// The literal inside parentheses and braces and behind `&`.
pub(crate) fn literal(expr: &Expr) -> Option<&ExprLit> {
    match bare(expr) {
        Expr::Lit(literal) => Some(literal),
        Expr::Block(block) if block.label.is_none() => match block.block.stmts.as_slice() {
            [Stmt::Expr(expr, None)] => literal(expr),
            _ => None,
        },
        _ => None,
    }
}

/// Whether an expression only names a value, so that it has no temporary to drop.
pub(crate) fn is_place(expr: &Expr) -> bool {
    match bare(expr) {
        Expr::Path(_) | Expr::Lit(_) => true,
        Expr::Field(field) => is_place(&field.base),
        Expr::Index(index) => is_place(&index.expr) && is_place(&index.index),
        _ => false,
    }
}

/// Removes the invisible groups around `$k:expr`, `$f:path` or `$r:ty` of a `macro_rules!`, at
/// every depth. Where that would change the precedence, parentheses are printed.
pub(crate) struct Groups;

impl VisitMut for Groups {
    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        while let Expr::Group(group) = expr {
            *expr = mem::replace(&mut *group.expr, Expr::PLACEHOLDER);
        }
        visit_mut::visit_expr_mut(self, expr);
    }

    fn visit_type_mut(&mut self, ty: &mut Type) {
        while let Type::Group(group) = ty {
            // The `+` of `dyn A + B` needs its group behind a `&`.
            if matches!(*group.elem, Type::TraitObject(_) | Type::ImplTrait(_)) {
                break;
            }
            *ty = mem::replace(&mut *group.elem, Type::Verbatim(Default::default()));
        }
        visit_mut::visit_type_mut(self, ty);
    }
}

/// Whether `tokens` have a name, also inside a literal, where a format may use it.
pub(crate) fn mentions(tokens: TokenStream, name: &Ident) -> bool {
    tokens.into_iter().any(|tree| match tree {
        TokenTree::Ident(ident) => ident == *name,
        TokenTree::Group(group) => mentions(group.stream(), name),
        TokenTree::Literal(literal) => literal.to_string().contains(&name.unraw().to_string()),
        TokenTree::Punct(_) => false,
    })
}

/// Types without a destructor.
const PLAIN: [&str; 16] = [
    "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32",
    "f64", "bool", "char",
];

/// Whether a type certainly has no destructor: a reference or a number.
pub(crate) fn is_plain(ty: &Type) -> bool {
    match ty {
        Type::Reference(_) => true,
        Type::Path(path) => PLAIN.iter().any(|plain| path.path.is_ident(plain)),
        _ => false,
    }
}

/// Whether a type certainly borrows nothing: a number or a `String`.
pub(crate) fn is_owned(ty: &Type) -> bool {
    match ty {
        Type::Path(path) => PLAIN.iter().chain(&["String"]).any(|name| path.path.is_ident(name)),
        _ => false,
    }
}
