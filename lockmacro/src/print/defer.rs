//! A function that can be deferred: the call that is stored, and the items beside the function.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt as _;
use syn::{Attribute, Expr, FnArg, Result, Type};

use crate::parse::defer::Defer;
use crate::parse::spans::respan;
use crate::print::expand::Printer;

impl Printer<'_> {
    /// Output: `audit_order_deferred().defer(error, (id,)).await`
    pub(crate) fn later(&self) -> Result<TokenStream> {
        let arguments = tuple(&self.function.call_arguments("defer")?, self.site);
        let arguments = quote_spanned!(self.site=> __error, #arguments);
        Ok(self.call("defer", &self.deferred(), &arguments))
    }

    /// The function beside the function.
    ///
    /// Output: `fn audit_order_deferred() -> DeferredFn<(u64,)> { … }`
    pub(crate) fn beside(&self, defer: &Defer) -> Result<TokenStream> {
        let runtime = &self.runtime;
        let function = self.function;
        let name = &function.sig.ident;
        let visibility = &function.visibility;
        let site = name.span().resolved_at(Span::mixed_site());
        let arguments = function.call_arguments("defer")?;
        let types = function.sig.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(argument) => Some(&*argument.ty),
            FnArg::Receiver(_) => None,
        });
        let types: Vec<_> = types.collect();
        let stored = arguments.iter().zip(&types).map(|(name, of)| self.stored(name, of));
        let stored = tuple(&stored.collect::<Vec<_>>(), site);
        let types = tuple(&types, site);
        // The macro's own names: an argument may have the function's name.
        let own = |mut name: Ident| {
            name.set_span(site);
            name
        };
        let manager = self.manager_by(&arguments);
        let arguments: Vec<_> = arguments.into_iter().map(own).collect();
        let named = tuple(&arguments, site);
        let new = Ident::new(if self.is_async { "new" } else { "blocking" }, site);
        let stored_as = self.name();
        let delay = self.time(&defer.delay);
        let unique = defer.unique.then(|| quote_spanned!(site=> .unique()));
        let latest = defer.latest.then(|| quote_spanned!(site=> .latest()));
        let at_most = defer.at_most.as_ref().map(|at_most| {
            let at_most = self.time(at_most);
            quote_spanned!(site=> .at_most(#at_most))
        });
        let attempts =
            defer.attempts.as_ref().map(|number| quote_spanned!(site=> .attempts(#number)));
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
                .delay(#delay) #unique #latest #at_most #attempts #manager
            }
        })
    }

    /// The choice of the manager for a job that is stored by hand. An expression that waits or
    /// returns has no meaning outside of its function.
    ///
    /// Output: `.manager_by(|(id,)| { let manager: &LockManager = &locks(); (manager.clone(), (id,)) })`
    fn manager_by(&self, arguments: &[Ident]) -> Option<TokenStream> {
        let manager =
            self.manager().filter(|_| self.args.manager.as_ref().is_some_and(is_plain))?;
        let first = self.manager_first();
        let site = self.site;
        let runtime = &self.runtime;
        let arguments = tuple(arguments, site);
        Some(quote_spanned! {site=>
            .manager_by(|#arguments| {
                #first
                let __chosen: &#runtime::LockManager = #manager;
                (::core::clone::Clone::clone(__chosen), #arguments)
            })
        })
    }

    /// Output: `audit_order_deferred().manager(manager)`
    pub(crate) fn deferred(&self) -> TokenStream {
        let site = self.site;
        let beside = beside(&self.function.sig.ident);
        let manager = self.manager().map(|manager| quote_spanned!(site=> .manager(#manager)));
        let deferred = quote_spanned!(site=> #beside()#manager);
        match self.manager_first() {
            Some(first) => {
                quote_spanned!(site=> ({ #first let __deferred = #deferred; __deferred }))
            }
            None => deferred,
        }
    }

    /// The conversion that stores an argument. An error underlines the argument in the function,
    /// from its name to its type.
    ///
    /// Output: `::lockmacro_runtime::defer::argument("note")`
    fn stored(&self, name: &Ident, of: &Type) -> TokenStream {
        let start = name.span();
        let text = name.unraw().to_string();
        let end = of.to_token_stream().into_iter().last().map_or(start, |last| last.span());
        let runtime = respan(self.runtime.to_token_stream(), start);
        let function = Ident::new("argument", end);
        quote_spanned!(start=> #runtime::defer::#function(#text))
    }
}

/// Whether an expression neither waits nor returns, as far as one can see without expanding a macro.
fn is_plain(expr: &Expr) -> bool {
    fn are_plain(tokens: TokenStream) -> bool {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let has_macro = tokens.windows(3).any(|three| match three {
            [TokenTree::Ident(_), TokenTree::Punct(mark), TokenTree::Group(_)] => {
                mark.as_char() == '!'
            }
            _ => false,
        });
        !has_macro
            && tokens.into_iter().all(|token| match token {
                TokenTree::Group(group) => are_plain(group.stream()),
                TokenTree::Ident(name) => name != "await" && name != "return",
                TokenTree::Punct(punct) => punct.as_char() != '?',
                TokenTree::Literal(_) => true,
            })
    }
    are_plain(expr.to_token_stream())
}

/// The name of the function beside the function.
fn beside(name: &Ident) -> Ident {
    Ident::new(&format!("{}_deferred", name.unraw()), name.span())
}

/// Output: `(id, note)`, `(id,)` or `()`
fn tuple(parts: &[impl ToTokens], site: Span) -> TokenStream {
    match parts {
        [one] => quote_spanned!(site=> (#one,)),
        parts => quote_spanned!(site=> (#(#parts),*)),
    }
}
