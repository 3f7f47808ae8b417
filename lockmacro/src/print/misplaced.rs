//! The attribute on a closure, a block or a statement, where the compiler has a message of its own.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::Parser as _;
use syn::{Block, Stmt};

use crate::parse::runtime;

/// A closure, a block or a statement, unchanged, with an error for compilers that allow attributes
/// there. Other compilers refuse the attribute before they reach this error.
pub(crate) fn as_it_was(item: &TokenStream) -> Option<TokenStream> {
    let statements = Block::parse_within.parse2(item.clone()).ok()?;
    let runtime = runtime::anywhere(Span::call_site());
    let error = quote!(#runtime::__private::misplaced::<()>(););
    match statements.as_slice() {
        [Stmt::Expr(_, None)] => Some(quote!({ #error #item })),
        [Stmt::Local(_) | Stmt::Expr(..)] => Some(quote!(#error #item)),
        _ => None,
    }
}
