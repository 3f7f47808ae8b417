//! The attribute on a closure, a block or a statement, which the compiler refuses in its own words.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::Parser as _;
use syn::{Block, Stmt};

use crate::runtime;

/// What is no item, as it was; with an error for compilers that allow attributes there, which comes
/// too late to be told beside that of those that do not.
pub(crate) fn as_it_was(item: &TokenStream) -> Option<TokenStream> {
    let statements = Block::parse_within.parse2(item.clone()).ok()?;
    let (runtime, module) = (runtime::path(Span::call_site()), runtime::module(Span::call_site()));
    let error = quote!(#runtime::#module::misplaced::<()>(););
    match statements.as_slice() {
        [Stmt::Expr(_, None)] => Some(quote!({ #error #item })),
        [Stmt::Local(_) | Stmt::Expr(..)] => Some(quote!(#error #item)),
        _ => None,
    }
}
