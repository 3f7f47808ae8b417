//! `when = expr`: without the lock where it is false.

use proc_macro2::TokenStream;
use quote::{ToTokens as _, quote_spanned};
use syn::{Block, Expr, ExprIf, Result, Stmt, Token, token};

use crate::expand::Printer;

impl Printer<'_> {
    /// Output: `if when { then } else { otherwise }`
    pub(crate) fn choice(
        &self,
        when: &Expr,
        then: TokenStream,
        otherwise: Option<TokenStream>,
    ) -> TokenStream {
        let site = self.site;
        let block = |inside| Block {
            brace_token: token::Brace(site),
            stmts: vec![Stmt::Expr(Expr::Verbatim(inside), None)],
        };
        let otherwise = otherwise.map(|otherwise| {
            let block = syn::ExprBlock { attrs: Vec::new(), label: None, block: block(otherwise) };
            (Token![else](site), Box::new(Expr::Block(block)))
        });
        // Printed by `syn`, which adds the parentheses that a condition may need.
        let choice = ExprIf {
            attrs: Vec::new(),
            if_token: Token![if](site),
            cond: Box::new(when.clone()),
            then_branch: block(then),
            else_branch: otherwise,
        };
        choice.into_token_stream()
    }

    /// The body for a variable, and the call of that variable without a lock.
    ///
    /// Output: `async move { body }` and `body.await`, or `once(move || body)` and `body()`
    pub(crate) fn alone(&self) -> (TokenStream, TokenStream) {
        let (site, body, module) = (self.site, self.body(), self.runtime.module(self.site));
        match self.is_async {
            true => (body, quote_spanned!(site=> __body.await)),
            // A closure in a variable could not return what it borrows from its arguments.
            false => (quote_spanned!(site=> #module::once(#body)), quote_spanned!(site=> __body())),
        }
    }

    /// The body, under a lock that may not be there. The body is in the function once.
    ///
    /// Output: `let lock = if when { Some(lock) } else { None }; let body = body;
    /// match lock { Some(lock) => lock.run(body).await, None => body.await }`
    pub(crate) fn locked_when(
        &self,
        when: &Expr,
        binding: Option<TokenStream>,
        lock: &TokenStream,
    ) -> Result<TokenStream> {
        let site = self.site;
        let (lock, guard) = match self.is_one_call() {
            true => (quote_spanned!(site=> #binding ::core::option::Option::Some(#lock)), None),
            false => {
                let held = quote_spanned!(site=> ::core::option::Option::Some(__held));
                let (first, held) = self.acquired(lock, &held)?;
                let guard = self.args.guard.as_ref().map(|guard| {
                    quote_spanned! {site=>
                        let #guard = __lock.as_ref().map(|__lock| __lock.share());
                        let #guard = #guard.as_ref();
                    }
                });
                (quote_spanned!(site=> #binding #first #held), guard)
            }
        };
        let none = quote_spanned!(site=> ::core::option::Option::None);
        let choice = self.choice(when, lock, Some(none));
        let (body, alone) = self.alone();
        let run = self.run(&quote_spanned!(site=> __lock), &quote_spanned!(site=> __body));
        Ok(quote_spanned! {site=>
            let __lock = #choice;
            #guard
            let __body = #body;
            match __lock {
                ::core::option::Option::Some(__lock) => #run,
                ::core::option::Option::None => #alone,
            }
        })
    }
}
