//! A function that can be deferred: the call that is stored, and the items beside the function.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt as _;
use syn::{Attribute, FnArg, Result, Type};

use crate::parse::defer::Defer;
use crate::parse::duration::Time;
use crate::parse::item::Function;
use crate::parse::runtime::Runtime;
use crate::parse::spans::respan;

impl Defer {
    /// Output: `audit_order_deferred().defer(error, (id,)).await`
    pub(crate) fn later(
        &self,
        function: &Function,
        managers: (Option<TokenStream>, Option<TokenStream>),
        site: Span,
    ) -> Result<TokenStream> {
        let arguments = tuple(&function.call_arguments("defer")?, site);
        let deferred = deferred(function, managers, site);
        Ok(if function.is_async() {
            quote_spanned!(site=> #deferred.defer(__error, #arguments).await)
        } else {
            quote_spanned!(site=> #deferred.defer_blocking(__error, #arguments))
        })
    }

    /// Before the body of a function that keeps the latest call: that is this one.
    ///
    /// Output: `set_price_deferred().supersede(&lock).await`
    pub(crate) fn superseded(
        &self,
        function: &Function,
        managers: (Option<TokenStream>, Option<TokenStream>),
        site: Span,
    ) -> Option<TokenStream> {
        let deferred = self.latest.then(|| deferred(function, managers, site))?;
        Some(if function.is_async() {
            quote_spanned!(site=> #deferred.supersede(&__lock).await)
        } else {
            quote_spanned!(site=> #deferred.supersede_blocking(&__lock))
        })
    }

    /// The function beside the function.
    ///
    /// Output: `fn audit_order_deferred() -> DeferredFn<(u64,)> { … }`
    pub(crate) fn beside(
        &self,
        function: &Function,
        runtime: &Runtime,
        stored_as: &TokenStream,
        time: impl Fn(&Time) -> TokenStream,
    ) -> Result<TokenStream> {
        let name = &function.sig.ident;
        let visibility = &function.visibility;
        let site = name.span().resolved_at(Span::mixed_site());
        let arguments = function.call_arguments("defer")?;
        let types = function.sig.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(argument) => Some(&*argument.ty),
            FnArg::Receiver(_) => None,
        });
        let types: Vec<_> = types.collect();
        let stored = arguments.iter().zip(&types).map(|(name, of)| argument(runtime, name, of));
        let stored = tuple(&stored.collect::<Vec<_>>(), site);
        let types = tuple(&types, site);
        // The macro's own names: an argument may have the function's name.
        let arguments: Vec<_> = arguments
            .into_iter()
            .map(|mut name| {
                name.set_span(site);
                name
            })
            .collect();
        let named = tuple(&arguments, site);
        let new = Ident::new(if function.is_async() { "new" } else { "blocking" }, site);
        let delay = time(&self.delay);
        let unique = self.unique.then(|| quote_spanned!(site=> .unique()));
        let latest = self.latest.then(|| quote_spanned!(site=> .latest()));
        let at_most = self.at_most.as_ref().map(|at_most| {
            let at_most = time(at_most);
            quote_spanned!(site=> .at_most(#at_most))
        });
        let attempts =
            self.attempts.as_ref().map(|number| quote_spanned!(site=> .attempts(#number)));
        let is_cfg = |attribute: &&Attribute| attribute.path().is_ident("cfg");
        let cfgs: Vec<_> = function.attributes.iter().filter(is_cfg).collect();
        let beside = beside(name);
        let about = format!(" The jobs of [`{name}`](fn@{name}), for a worker.");
        Ok(quote_spanned! {site=>
            #(#cfgs)*
            #[doc = #about]
            #visibility fn #beside() -> #runtime::defer::DeferredFn<#types> {
                #runtime::defer::DeferredFn::#new(
                    #stored_as,
                    #stored,
                    |#named| #name(#(#arguments),*),
                )
                .delay(#delay) #unique #latest #at_most #attempts
            }
        })
    }
}

/// The name of the function beside the function.
fn beside(name: &Ident) -> Ident {
    Ident::new(&format!("{}_deferred", name.unraw()), name.span())
}

/// Output: `audit_order_deferred().manager(manager)`
fn deferred(
    function: &Function,
    (first, manager): (Option<TokenStream>, Option<TokenStream>),
    site: Span,
) -> TokenStream {
    let beside = beside(&function.sig.ident);
    let manager = manager.map(|manager| quote_spanned!(site=> .manager(#manager)));
    let deferred = quote_spanned!(site=> #beside()#manager);
    match first {
        Some(_) => quote_spanned!(site=> ({ #first let __deferred = #deferred; __deferred })),
        None => deferred,
    }
}

/// Output: `(id, note)`, `(id,)` or `()`
fn tuple(parts: &[impl ToTokens], site: Span) -> TokenStream {
    match parts {
        [one] => quote_spanned!(site=> (#one,)),
        parts => quote_spanned!(site=> (#(#parts),*)),
    }
}

/// The conversion that stores an argument. An error underlines the argument in the function, from
/// its name to its type.
///
/// Output: `::lockmacro_runtime::defer::argument("note")`
fn argument(runtime: &Runtime, name: &Ident, of: &Type) -> TokenStream {
    let start = name.span();
    let text = name.unraw().to_string();
    let end = of.to_token_stream().into_iter().last().map_or(start, |last| last.span());
    let runtime = respan(runtime.to_token_stream(), start);
    let function = Ident::new("argument", end);
    quote_spanned!(start=> #runtime::defer::#function(#text))
}
