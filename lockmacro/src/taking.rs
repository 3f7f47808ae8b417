//! Expressions that may move an argument before the body gets it.

use syn::Expr;

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

/// Whether a condition may move an argument. A comparison or a value of an argument does not.
pub(crate) fn is_condition_taking(expr: &Expr) -> bool {
    match expr {
        Expr::Path(_) | Expr::Lit(_) | Expr::Reference(_) => false,
        Expr::Macro(call) => !call.mac.path.is_ident("matches"),
        Expr::Paren(paren) => is_condition_taking(&paren.expr),
        Expr::Unary(unary) => is_condition_taking(&unary.expr),
        Expr::Cast(cast) => is_condition_taking(&cast.expr),
        Expr::Field(field) => is_condition_taking(&field.base),
        Expr::Index(index) => is_condition_taking(&index.expr) || is_condition_taking(&index.index),
        Expr::Binary(binary) => {
            is_condition_taking(&binary.left) || is_condition_taking(&binary.right)
        }
        Expr::Call(_) => is_taking(expr),
        Expr::MethodCall(call) => {
            is_taking(expr) || call.args.iter().any(|argument| matches!(argument, Expr::Path(_)))
        }
        _ => true,
    }
}
