//! Expressions that may move an argument before the body gets it.

use syn::{Expr, ExprMethodCall};

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

/// The parts of a condition that may move an argument. A comparison or a value of an argument does
/// not.
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
        Expr::Call(_) if !is_taking(condition) => Vec::new(),
        Expr::MethodCall(call) if !is_taking(condition) && !is_moved(call) => Vec::new(),
        other => vec![other],
    }
}
