//! `unlocked = name`: a second function with the same body, for callers that hold the lock.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::FnArg;
use syn::ext::IdentExt as _;

use crate::expand::Printer;
use crate::item::bindings;
use crate::key::Key;
use crate::path::mentions;
use crate::second_name::renamed;

impl Printer<'_> {
    /// The body a second time, because neither function can call the other one: a function without
    /// `self` may be a free one or belong to a type, and only one of `audit_held(id)` and
    /// `Self::audit_held(id)` compiles. An argument may also be a pattern, without a name to pass
    /// on. The body has the same form as under the lock, so that the compiler reports each mistake
    /// in it once.
    ///
    /// Output: `fn audit_held(id: u64) -> Ret { if cfg!(debug_assertions) { .. } body.await }`
    pub(crate) fn unlocked(&self) -> TokenStream {
        let Some(name) = &self.args.unlocked else { return TokenStream::new() };
        let (used, assertion) = (self.used_for_the_lock(), self.assertion(name));
        let (body, alone) = self.alone();
        let body = quote_spanned! {self.site=>
            #used
            #assertion
            let __body = #body;
            #alone
        };
        self.function.printed(self.head_of(name), body)
    }

    /// The function's attributes and signature with another name and further docs.
    fn head_of(&self, name: &Ident) -> TokenStream {
        let function = self.function;
        let attributes = &function.attributes;
        let locked = function.sig.ident.unraw();
        let lock = match &self.args.key {
            Key::Template(template) => format!("the lock `{}`", template.literal.value()),
            Key::Several(_) | Key::Keys(_) => "all of its keys".to_owned(),
            Key::Expr(_) | Key::Branches(_) | Key::Shared(..) => "its lock".to_owned(),
        };
        let about = format!(" `{locked}` without its lock, for callers that hold {lock} already.");
        let panics = " Panics without the lock, in builds with debug assertions.";
        let outer = function.attributes.iter().flat_map(|attribute| attribute.to_token_stream());
        let signature = function.head.clone().into_iter().skip(outer.count()).collect();
        let (signature, _) = renamed(signature, name);
        quote! {
            #[doc = #about]
            #[doc = ""]
            #(#attributes)*
            #[doc = ""]
            #[doc = " # Panics"]
            #[doc = #panics]
            #signature
        }
    }

    /// Uses the arguments that only the attribute uses, so that the compiler does not warn of them.
    ///
    /// Output: `let _ = &locks;`
    fn used_for_the_lock(&self) -> TokenStream {
        let mut tokens = TokenStream::new();
        for input in &self.function.sig.inputs {
            let FnArg::Typed(typed) = input else { continue };
            let cfgs: Vec<_> =
                typed.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg")).collect();
            for (name, _) in bindings(&typed.pat) {
                if self.uses(&name) && !mentions(self.function.body.stream(), &name) {
                    tokens.extend(quote_spanned!(self.site=> #(#cfgs)* let _ = &#name;));
                }
            }
        }
        tokens
    }

    /// Output: `if cfg!(debug_assertions) { if let Some(key) = not_held([key]) { panic!(..) } }`
    fn assertion(&self, name: &Ident) -> TokenStream {
        let (site, module) = (self.site, self.runtime.module(self.site));
        let keys = self.keys();
        let message = format!(
            "`{name}` is for callers that hold the lock `{{}}`, and this one does not: call `{}`",
            self.function.sig.ident
        );
        let not_held = match (&self.args.sharing, &self.args.policy) {
            (Some(_), _) => quote_spanned!(site=> #module::not_held_in_any_mode(#keys)),
            (None, Some(policy)) => quote_spanned!(site=> #module::not_held_under(#policy, #keys)),
            (None, None) => quote_spanned!(site=> #module::not_held(#keys)),
        };
        let assertion = quote_spanned! {site=>
            if let ::core::option::Option::Some(__key) = #not_held {
                ::core::panic!(#message, __key);
            }
        };
        let assertion = match &self.args.when {
            Some(when) => self.choice(when, assertion, None),
            None => assertion,
        };
        quote_spanned!(site=> if ::core::cfg!(debug_assertions) { #assertion })
    }
}
