//! `on_busy = defer("30s")`: its settings, the functions that can be deferred, and the items that
//! are printed beside such a function.

use std::time::Duration;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Attribute, Error, Expr, ExprCall, ExprLit, FnArg, GenericArgument, Lit, LitInt};
use syn::{Pat, Result, Safety, Type};

use crate::boxed::{arguments, named, type_argument};
use crate::duration::{self, Time};
use crate::faults::Faults;
use crate::item::{Function, Shape};
use crate::names;
use crate::path::{is_path, variable};
use crate::runtime::Runtime;
use crate::spans::respan;

/// The longest delay, the same as in the runtime.
const DELAY_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The most arguments of a deferred function: larger tuples cannot be stored.
const ARGUMENTS_MAX: usize = 16;

/// The settings of `defer(..)`.
pub(crate) struct Defer {
    pub(crate) delay: Time,
    unique: bool,
    latest: bool,
    at_most: Option<Time>,
    attempts: Option<LitInt>,
    /// The span of `defer(..)`.
    pub(crate) span: Span,
}

impl Defer {
    /// Reads `defer("30s", latest, at_most = "5m", attempts = 5)`.
    pub(crate) fn parse(call: ExprCall) -> Result<Self> {
        if !cfg!(feature = "defer") {
            let message = "`defer` is a feature: write `lockmacro-runtime = { version = \"0.1\", \
                           features = [\"defer\"] }` in Cargo.toml";
            return Err(Error::new_spanned(call, message));
        }
        let span = call.span();
        let mut settings = call.args.into_iter();
        let Some(delay) = settings.next() else {
            let message =
                "`defer` says after how long the call is tried again: write `defer(\"30s\")`";
            return Err(Error::new(span, message));
        };
        if let Expr::Assign(assign) = &delay
            && is_path(&assign.left, "delay")
        {
            return Err(Error::new_spanned(
                delay,
                "the delay stands alone: write `defer(\"30s\")`",
            ));
        }
        let (place, delay) = (delay.span(), duration::written("defer({})", delay)?);
        if delay.literal().is_some_and(|delay| delay > DELAY_MAX) {
            let message = "this delay is too long: it is at most \"7days\"";
            return Err(Error::new(place, message));
        }
        let (unique, latest) = (false, false);
        let mut defer = Self { delay, unique, latest, at_most: None, attempts: None, span };
        let mut faults = Faults::default();
        for setting in settings {
            faults.keep(defer.set(&setting));
        }
        faults.end()?;
        defer.fit().map(|()| defer)
    }

    /// Refuses settings that do not fit each other.
    fn fit(&self) -> Result<()> {
        let at_most = self.at_most.as_ref().map(Time::literal);
        let message = match (at_most, self.delay.literal()) {
            _ if self.unique && self.latest => {
                "`unique` keeps the first call of a key, and `latest` the last one: remove one of \
                 them"
            }
            (Some(_), _) if !self.latest => {
                "`at_most` is how long later calls put the waiting one off, which `latest` keeps: \
                 write `defer(\"30s\", latest, at_most = \"5m\")`"
            }
            (Some(Some(at_most)), Some(delay)) if at_most < delay => {
                "`at_most` is shorter than the delay, so no call could be put off: write a longer \
                 one, or remove it"
            }
            _ => return Ok(()),
        };
        Err(Error::new(self.span, message))
    }

    /// Reads the settings after the delay.
    fn set(&mut self, setting: &Expr) -> Result<()> {
        let (name, value) = match setting {
            Expr::Assign(assign) => (assign.left.to_token_stream(), Some(&*assign.right)),
            alone => (alone.to_token_stream(), None),
        };
        let message = match (name.to_string().as_str(), value) {
            ("unique", None) => match std::mem::replace(&mut self.unique, true) {
                false => return Ok(()),
                true => "`unique` is given twice: remove one",
            },
            ("unique", _) => "`unique` stands alone: write `defer(\"30s\", unique)`",
            ("latest", None) => match std::mem::replace(&mut self.latest, true) {
                false => return Ok(()),
                true => "`latest` is given twice: remove one",
            },
            ("latest", _) => "`latest` stands alone: write `defer(\"30s\", latest)`",
            ("at_most", Some(value)) => match duration::time("at_most", value.clone())? {
                time if time.literal().is_some_and(|time| time > DELAY_MAX) => {
                    "this time is too long: `at_most` is at most \"7days\""
                }
                time => match self.at_most.replace(time) {
                    None => return Ok(()),
                    Some(_) => "`at_most` is given twice: remove one",
                },
            },
            ("at_most", None) => {
                "`at_most` is the longest time for which calls put one off: write \
                 `at_most = \"5m\"`"
            }
            ("attempts", Some(Expr::Lit(ExprLit { lit: Lit::Int(number), .. })))
                if number.base10_parse::<u32>().is_ok_and(|tries| tries > 0) =>
            {
                match self.attempts.replace(number.clone()) {
                    None => return Ok(()),
                    Some(_) => "`attempts` is given twice: remove one",
                }
            }
            ("attempts", _) => {
                "`attempts` is the number of times that the call is tried: write `attempts = 5`"
            }
            ("name", _) => {
                "the name stands beside `on_busy`: write `name = \"orders.audit\"` there"
            }
            (other, _) => &names::setting(other).unwrap_or_else(|| {
                "after the delay `defer` takes `unique` or `latest`, `at_most = \"5m\"` and \
                 `attempts = 5`"
                    .to_owned()
            }),
        };
        Err(Error::new_spanned(setting, message))
    }

    /// Refuses functions that a worker could not call with the stored arguments.
    pub(crate) fn check(&self, function: &Function, several_keys: bool) -> Result<()> {
        let sig = &function.sig;
        let delay = self.delay.expr().filter(|delay| {
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
        let unique = (self.unique && several_keys).then_some(self.span);
        let latest = (self.latest && several_keys).then_some(self.span);
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
            (
                unsafety,
                "a worker cannot know what makes this call safe: remove `unsafe`, or `defer`",
            ),
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

    /// Output: `audit_order::deferred().defer(error, (id,)).await`
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
    /// Output: `set_price::deferred().supersede(&lock).await`
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

    /// The items beside the function. Their type has the function's name, which is free for types.
    ///
    /// Output: `enum audit_order {}`, and
    /// `impl audit_order { fn deferred() -> DeferredFn<(u64,)> { … } }`
    pub(crate) fn beside(
        &self,
        function: &Function,
        runtime: &Runtime,
        stored_as: &TokenStream,
        time: impl Fn(&Time) -> TokenStream,
    ) -> Result<TokenStream> {
        let (name, visibility) = (&function.sig.ident, &function.visibility);
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
        let about = format!(" The deferred calls of [`{name}`](fn@{name}), for a worker.");
        Ok(quote_spanned! {site=>
            #(#cfgs)*
            #[doc = #about]
            #[allow(non_camel_case_types)]
            #visibility enum #name {}
            #(#cfgs)*
            impl #name {
                #[doc = #about]
                #visibility fn deferred() -> #runtime::defer::DeferredFn<#types> {
                    #runtime::defer::DeferredFn::#new(
                        #stored_as,
                        #stored,
                        |#named| #name(#(#arguments),*),
                    )
                    .delay(#delay) #unique #latest #at_most #attempts
                }
            }
        })
    }
}

/// Output: `audit_order::deferred().manager(manager)`
fn deferred(
    function: &Function,
    (first, manager): (Option<TokenStream>, Option<TokenStream>),
    site: Span,
) -> TokenStream {
    let name = &function.sig.ident;
    let manager = manager.map(|manager| quote_spanned!(site=> .manager(#manager)));
    let deferred = quote_spanned!(site=> #name::deferred()#manager);
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
    let (start, text) = (name.span(), name.unraw().to_string());
    let end = of.to_token_stream().into_iter().last().map_or(start, |last| last.span());
    let runtime = respan(runtime.to_token_stream(), start);
    let function = Ident::new("argument", end);
    quote_spanned!(start=> #runtime::defer::#function(#text))
}

/// Whether the return type has a value for "nothing": `()`, `Option<T>` or `Result<Option<T>, E>`.
pub(crate) fn says_nothing(output: &Type) -> bool {
    let is_option = |output: &Type| named(output, "Option").is_some();
    let value = || type_argument(named(output, "Result")?);
    matches!(output, Type::Tuple(tuple) if tuple.elems.is_empty())
        || is_option(output)
        || value().is_some_and(is_option)
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
