//! `policy = ORDERS`: a constant with settings that the attribute does not name.

use proc_macro2::{Ident, TokenStream};
use quote::quote_spanned;
use syn::ExprPath;
use syn::spanned::Spanned as _;

use crate::duration::Time;
use crate::expand::Printer;
use crate::spans::respan;

/// Whether a path may depend on type parameters, which a constant in a function cannot use: a path
/// through a type. Modules have small letters.
fn is_of_a_type(path: &ExprPath) -> bool {
    let mut segments = path.path.segments.iter();
    segments.next_back();
    let is_type = |name: &Ident| name.to_string().starts_with(char::is_uppercase);
    path.qself.is_some()
        || segments.any(|segment| is_type(&segment.ident) || !segment.arguments.is_none())
}

impl Printer<'_> {
    /// A constant, so that a wrong policy is an error of the compiler. One with a name is computed
    /// by `cargo check` already, and one without a name may depend on type parameters.
    ///
    /// Output: `.policy({ const __POLICY: LockPolicy = checked(ORDERS, arguments, "error");
    /// __POLICY })`, or `.policy(const { checked(Self::ORDERS, arguments, "error") })`
    pub(crate) fn policy(&self) -> Option<TokenStream> {
        let path = self.args.policy.as_ref()?;
        let (site, there) = (self.site, path.span().resolved_at(self.site));
        let (runtime, module) = (&self.runtime, self.runtime.private(site));
        let on_busy = self.args.on_busy.word();
        let times = self.times(|time| match time {
            Time::Literal(_) => self.time(time),
            // It is not known yet.
            Time::Expr(_) => quote_spanned!(site=> ::core::time::Duration::MAX),
        });
        let arguments = quote_spanned!(site=> #runtime::LockPolicy::new() #times);
        // An error about the policy belongs to its path.
        let checked = respan(quote_spanned!(there=> #module::checked), there);
        let checked = quote_spanned!(there=> #checked(#path, #arguments, #on_busy));
        let policy = match is_of_a_type(path) {
            true => quote_spanned!(site=> const { #checked }),
            false => quote_spanned!(site=> {
                const __POLICY: #runtime::LockPolicy = #checked;
                __POLICY
            }),
        };
        let (default_wait, policy) = (self.default_wait(), self.set("policy", "policy", policy));
        Some(quote_spanned!(site=> #default_wait #policy))
    }
}
