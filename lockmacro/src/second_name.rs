//! A function under the name that `unlocked = name` gives it.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::quote;
use syn::ext::IdentExt as _;

use crate::args::Args;
use crate::item::mentions;

/// The function under its second name, for an attribute with a mistake: its callers have none.
pub(crate) fn as_it_was(args: TokenStream, item: &TokenStream) -> Option<TokenStream> {
    let name = syn::parse2::<Args>(args).ok()?.unlocked?;
    let (second, first) = renamed(item.clone(), &name);
    let is_new = first.is_some_and(|first| first.unraw() != name.unraw());
    let has_body = matches!(
        second.clone().into_iter().last(),
        Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace
    );
    let is_of_a_trait = mentions(item.clone(), &Ident::new("async_trait", name.span()));
    (is_new && has_body && !is_of_a_trait)
        .then(|| quote!(#[allow(unused_variables, dead_code)] #second))
}

/// Gives a function another name. Returns the old name as well.
pub(crate) fn renamed(item: TokenStream, name: &Ident) -> (TokenStream, Option<Ident>) {
    let (mut is_name, mut old) = (false, None);
    let tokens = item.into_iter().map(|token| match token {
        TokenTree::Ident(word) if is_name => {
            (is_name, old) = (false, Some(word));
            TokenTree::Ident(name.clone())
        }
        TokenTree::Ident(word) => {
            is_name = old.is_none() && word == "fn";
            TokenTree::Ident(word)
        }
        other => other,
    });
    (tokens.collect(), old)
}
