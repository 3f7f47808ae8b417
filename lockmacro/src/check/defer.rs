//! The functions that can be deferred.

use quote::ToTokens as _;
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Error, FnArg, GenericArgument, Result, Safety, Type};

use crate::messages::{self, refuse};
use crate::parse::args::Args;
use crate::parse::boxed::arguments;
use crate::parse::defer::Defer;
use crate::parse::item::{Function, Shape};

/// The most arguments of a deferred function: larger tuples cannot be stored.
const ARGUMENTS_MAX: usize = 16;

/// Refuses functions that a worker could not call with the stored arguments.
pub(crate) fn check(defer: &Defer, args: &Args, function: &Function) -> Result<()> {
    let sig = &function.sig;
    let boxed = matches!(function.shape, Shape::Boxed(_)).then(|| sig.ident.span());
    let unsafety = match &sig.safety {
        Safety::Unsafe(unsafety) => Some(unsafety.span()),
        _ => None,
    };
    let many = (sig.inputs.len() > ARGUMENTS_MAX).then(|| sig.inputs.span());
    let several = (defer.unique || defer.latest) && !args.key.is_one();
    let several = several.then(|| args.span_of("on_busy"));
    refuse([
        (sig.receiver().map(Spanned::span), messages::DEFER_SELF),
        (boxed, messages::DEFER_BOXED),
        (unsafety, messages::DEFER_UNSAFE),
        (sig.generics.params.first().map(Spanned::span), messages::DEFER_GENERIC),
        (many, messages::DEFER_MANY),
        (several, messages::DEFER_SEVERAL),
    ])?;
    for input in &sig.inputs {
        if let FnArg::Typed(argument) = input
            && let Some(borrow) = borrow_in(&argument.ty)
        {
            let name = argument.pat.to_token_stream();
            return Err(Error::new(argument.ty.span(), messages::not_stored(name, borrow)));
        }
    }
    Ok(())
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
