//! Expressions that only name a value, and the invisible groups of `macro_rules!` variables.

use std::mem;

use proc_macro2::Ident;
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, Type};

/// Whether an expression is this name and nothing else.
pub(crate) fn is_path(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::Path(path) if path.path.is_ident(name))
}

/// The variable inside parentheses and behind `&`.
pub(crate) fn variable(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::Path(path) => path.path.get_ident(),
        Expr::Paren(paren) => variable(&paren.expr),
        Expr::Reference(reference) => variable(&reference.expr),
        _ => None,
    }
}

/// Whether an expression only names a value, so that it has no temporary to drop.
pub(crate) fn is_place(expr: &Expr) -> bool {
    match expr {
        Expr::Path(_) | Expr::Lit(_) => true,
        Expr::Field(field) => is_place(&field.base),
        Expr::Index(index) => is_place(&index.expr) && is_place(&index.index),
        Expr::Reference(reference) => is_place(&reference.expr),
        Expr::Paren(paren) => is_place(&paren.expr),
        _ => false,
    }
}

/// Removes the invisible groups around `$k:expr`, `$f:path` or `$r:ty` of a `macro_rules!`, at
/// every depth. Where that would change the precedence, parentheses are printed.
pub(crate) fn ungroup(what: &mut impl Grouped) {
    what.visit(&mut Groups);
}

/// A value of the attribute, or a type of the function.
pub(crate) trait Grouped {
    fn visit(&mut self, groups: &mut Groups);
}

impl Grouped for Expr {
    fn visit(&mut self, groups: &mut Groups) {
        groups.visit_expr_mut(self);
    }
}

impl Grouped for Type {
    fn visit(&mut self, groups: &mut Groups) {
        groups.visit_type_mut(self);
    }
}

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
