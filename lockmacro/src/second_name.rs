//! A function under the name that `unlocked = name` gives it.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens as _, quote};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Error, Result};

use crate::args::Args;
use crate::item::Function;
use crate::path::mentions;

/// Refuses attributes, and a name, that only one function can have.
pub(crate) fn check_attributes(function: &Function) -> Result<()> {
    let fault = |span: Span, what: &str| {
        let message = format!(
            "{what}: remove `unlocked`, or put this attribute on a function that `{}` calls",
            function.sig.ident
        );
        Err(Error::new(span, message))
    };
    for attribute in &function.attributes {
        let path = attribute.path();
        let tokens = || attribute.meta.to_token_stream();
        let has = |word: &str| mentions(tokens(), &Ident::new(word, path.span()));
        match path.segments.last().map(|last| last.ident.to_string()).as_deref() {
            Some("test" | "rstest" | "test_case" | "bench") => {
                return fault(path.span(), "the test would run a second time, without the lock");
            }
            Some("main") => return fault(path.span(), "a program has one `main`"),
            _ if has("no_mangle") || has("export_name") => {
                return fault(path.span(), "only one function can have this name in the linker");
            }
            _ => {}
        }
    }
    match function.sig.ident == "main" && function.sig.receiver().is_none() {
        true => fault(function.sig.ident.span(), "a program has one `main`"),
        false => Ok(()),
    }
}

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
