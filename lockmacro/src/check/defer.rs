//! The functions that can be deferred.

use quote::quote;
use syn::ext::IdentExt as _;
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Error, FnArg, GenericArgument, Pat, Result, Safety, Type};

use crate::parse::boxed::arguments;
use crate::parse::defer::Defer;
use crate::parse::item::{Function, Shape};
use crate::parse::path::{is_path, variable};

/// The most arguments of a deferred function: larger tuples cannot be stored.
const ARGUMENTS_MAX: usize = 16;

/// Refuses functions that a worker could not call with the stored arguments.
pub(crate) fn check(defer: &Defer, function: &Function, several_keys: bool) -> Result<()> {
    let sig = &function.sig;
    let delay = defer.delay.expr().filter(|delay| {
        let is_setting = is_path(delay, "unique") || is_path(delay, "latest");
        is_setting && variable(delay).is_some_and(|name| !function.names().contains(name))
    });
    let receiver = sig.receiver().map(Spanned::span);
    let boxed = matches!(function.shape, Shape::Boxed(_)).then(|| sig.ident.span());
    let unsafety = match &sig.safety {
        Safety::Unsafe(unsafety) => Some(unsafety.span()),
        _ => None,
    };
    let generic = sig.generics.params.first().map(Spanned::span);
    let many = (sig.inputs.len() > ARGUMENTS_MAX).then(|| sig.inputs.span());
    let unique = (defer.unique && several_keys).then_some(defer.span);
    let latest = (defer.latest && several_keys).then_some(defer.span);
    let faults = [
        (
            delay.map(Spanned::span),
            "the delay stands before the other settings: write it, as in `defer(\"30s\", \
                 latest)`",
        ),
        (
            receiver,
            "`defer` stores the call for a worker, and `self` cannot be stored: lock a free \
                 function that takes what it needs as arguments",
        ),
        (
            boxed,
            "`defer` stores the call for a worker, which can call free functions: write a free \
                 `async fn` that returns the future's output",
        ),
        (unsafety, "a worker cannot know what makes this call safe: remove `unsafe`, or `defer`"),
        (
            generic,
            "a stored call has no type parameters and no lifetimes: write a function without \
                 them, with owned arguments",
        ),
        (many, "at most 16 arguments can be stored: put some of them into a struct"),
        (
            unique,
            "`unique` has one call wait for each key, and this function has several: remove \
                 `unique`",
        ),
        (
            latest,
            "`latest` has one call wait for each key, and this function has several: remove \
                 `latest`",
        ),
    ];
    if let Some((span, message)) = faults.iter().find_map(|(span, it)| Some(((*span)?, it))) {
        return Err(Error::new(span, message));
    }
    for input in &sig.inputs {
        if let FnArg::Typed(argument) = input
            && let Some(borrow) = borrow_in(&argument.ty)
        {
            let pattern = &argument.pat;
            let name = match &**pattern {
                Pat::Ident(pat) => pat.ident.unraw().to_string(),
                _ => quote!(#pattern).to_string(),
            };
            let message = format!(
                "`{name}` is {borrow}, which cannot be stored for later: take an owned value \
                     that implements serde's `Serialize` and `Deserialize`"
            );
            return Err(Error::new(argument.ty.span(), message));
        }
    }
    function.call_arguments("defer").map(drop)
}

/// The part of a type that is borrowed, or that has no name.
fn borrow_in(argument: &Type) -> Option<&'static str> {
    struct Borrows(Option<&'static str>);
    impl<'ast> Visit<'ast> for Borrows {
        fn visit_type_reference(&mut self, _: &'ast syn::TypeReference) {
            self.0.get_or_insert("a borrow");
        }
        fn visit_lifetime(&mut self, lifetime: &'ast syn::Lifetime) {
            if lifetime.ident != "static" {
                self.0.get_or_insert("a borrow");
            }
        }
        fn visit_path_segment(&mut self, segment: &'ast syn::PathSegment) {
            let mut arguments = arguments(segment).into_iter().flatten();
            if segment.ident == "Cow"
                && !arguments.any(|argument| matches!(argument, GenericArgument::Lifetime(_)))
            {
                self.0.get_or_insert("a borrow");
            }
            syn::visit::visit_path_segment(self, segment);
        }
        fn visit_type_impl_trait(&mut self, _: &'ast syn::TypeImplTrait) {
            self.0.get_or_insert("of any type");
        }
    }
    let mut borrows = Borrows(None);
    borrows.visit_type(argument);
    borrows.0
}
