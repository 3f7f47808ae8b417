//! Tokens out: one call of the runtime's public API.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Expr, ExprReference, Path, Result, Token, parse_quote_spanned};

use crate::args::{Args, Key, OnBusy};
use crate::check;
use crate::duration::Time;
use crate::item::{Function, Shape, braces};
use crate::template::{Part, Template};

/// The attribute: the function under its lock, or as it was and one error.
pub(crate) fn attribute(args: TokenStream, item: TokenStream) -> TokenStream {
    expand(args, item.clone()).unwrap_or_else(|error| {
        let error = error.into_compile_error();
        quote!(#item #error)
    })
}

fn expand(args: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function: Function = syn::parse2(item)?;
    let args: Args = syn::parse2(args)?;
    check::check(&args, &function)?;
    let locked = Printer::new(&args, &function).locked()?;
    Ok(function.with_body(locked))
}

struct Printer<'a> {
    args: &'a Args,
    function: &'a Function,
    is_async: bool,
    runtime: Path,
    /// All tokens of ours: so the compiler tells what is wrong with the return type once, and at
    /// the return type, and takes none of our names for the user's.
    site: Span,
}

impl<'a> Printer<'a> {
    fn new(args: &'a Args, function: &'a Function) -> Self {
        let site = function.output_span.resolved_at(Span::mixed_site());
        let default = || parse_quote_spanned!(site=> ::lockmacro_runtime);
        let runtime = args.runtime.clone().unwrap_or_else(default);
        let is_async = !matches!(function.shape, Shape::Blocking);
        Self { args, function, is_async, runtime, site }
    }

    /// Input: the body
    ///
    /// Output: `Lock::new(key).ttl(ttl).name("function").run(async move { body }).await`
    fn locked(&self) -> Result<TokenStream> {
        let site = self.site;
        let lock = self.lock();
        // What an expression leaves behind, a mutex guard say, must not live as long as the body.
        let (binding, lock) = if self.args.exprs().all(is_place) {
            (None, lock)
        } else {
            (Some(quote_spanned!(site=> let lock = #lock;)), quote_spanned!(site=> lock))
        };
        let call = match &self.args.on_busy {
            OnBusy::Error => self.call("run", &lock, &self.body()),
            OnBusy::Skip => self.call("run_or_skip", &lock, &self.body()),
            OnBusy::Fallback(path) => self.fallback(path, &lock)?,
        };
        Ok(quote_spanned!(site=> #binding #call))
    }

    /// Output: `match lock.acquire().await { Ok(guard) => guard.run(body).await, … }`
    fn fallback(&self, path: &Path, lock: &TokenStream) -> Result<TokenStream> {
        let (site, runtime) = (self.site, &self.runtime);
        let acquired = self.call("acquire", lock, &TokenStream::new());
        let guarded = self.call("run", &quote_spanned!(site=> guard), &self.body());
        // An error about the call belongs to the path, not to the arguments of this function.
        let there = path.span();
        let mut arguments = self.function.call_arguments()?;
        for argument in &mut arguments {
            argument.set_span(there.resolved_at(argument.span()));
        }
        let suffix = self.is_async.then(|| quote_spanned!(there.resolved_at(site)=> .await));
        let instead = quote_spanned!(there.resolved_at(site)=> #path(#(#arguments),*) #suffix);
        Ok(quote_spanned! {site=>
            match #acquired {
                ::core::result::Result::Ok(guard) => #guarded,
                ::core::result::Result::Err(error) if error.is_busy() => #instead,
                ::core::result::Result::Err(error) => #runtime::LockOutcome::from_lock_error(error),
            }
        })
    }

    /// Output: `lock.run(argument).await`, or what it is called in a sync function.
    fn call(&self, method: &str, lock: &TokenStream, argument: &TokenStream) -> TokenStream {
        let method = match (method, self.is_async) {
            ("run_or_skip", false) => "run_blocking_or_skip".to_owned(),
            (method, false) => format!("{method}_blocking"),
            (method, true) => method.to_owned(),
        };
        let method = Ident::new(&method, self.site);
        let suffix = self.is_async.then(|| quote_spanned!(self.site=> .await));
        quote_spanned!(self.site=> #lock.#method(#argument) #suffix)
    }

    /// Output: `Lock::new(key).ttl(ttl).name("function")`
    fn lock(&self) -> TokenStream {
        let (site, runtime) = (self.site, &self.runtime);
        let key = match &self.args.key {
            Key::Template(template) => self.key(template),
            Key::Expr(expr) => expr.to_token_stream(),
        };
        let ttl = match &self.args.ttl {
            Time::Literal(ttl) if ttl.subsec_millis() == 0 => {
                let seconds = Literal::u64_unsuffixed(ttl.as_secs());
                quote_spanned!(site=> ::core::time::Duration::from_secs(#seconds))
            }
            Time::Literal(ttl) => {
                let millis = Literal::u128_unsuffixed(ttl.as_millis());
                quote_spanned!(site=> ::core::time::Duration::from_millis(#millis))
            }
            Time::Expr(expr) => expr.to_token_stream(),
        };
        let name = self.function.sig.ident.unraw().to_string();
        let message = self.args.message.as_ref().map(|template| {
            let message = self.message(template);
            quote_spanned!(site=> .message(#message))
        });
        let manager = self.args.manager.as_ref().map(|manager| {
            let manager = reference(manager, manager.span().resolved_at(site));
            quote_spanned!(site=> .manager(#manager))
        });
        quote_spanned!(site=> #runtime::Lock::new(#key).ttl(#ttl).name(#name) #message #manager)
    }

    /// Output: `LockKey::template("order:<id>").literal("order:").value(&id)`
    fn key(&self, template: &Template) -> TokenStream {
        let (site, runtime) = (self.site, &self.runtime);
        if let Some(text) = template.as_plain() {
            return quote_spanned!(site=> #text);
        }
        let parts = template.parts.iter().map(|part| match part {
            Part::Literal(text) => quote_spanned!(site=> .literal(#text)),
            Part::Value(value) => {
                let value = reference(&value.expr, template.literal.span().resolved_at(site));
                quote_spanned!(site=> .value(#value))
            }
        });
        let text = template.literal.value();
        quote_spanned!(site=> #runtime::LockKey::template(#text) #(#parts)*)
    }

    /// Output: `format!("order {} is being audited", id)`
    fn message(&self, template: &Template) -> TokenStream {
        if let Some(text) = template.as_plain() {
            return quote_spanned!(self.site=> #text);
        }
        let mut format = String::new();
        for part in &template.parts {
            match part {
                Part::Literal(text) => format.push_str(&text.replace('{', "{{").replace('}', "}}")),
                Part::Value(_) => format.push_str("{}"),
            }
        }
        let values = template.exprs();
        let site = template.literal.span().resolved_at(self.site);
        quote_spanned!(site=> ::std::format!(#format, #(#values),*))
    }

    /// Output: `async move { if false { return outcome::<Ret>(); } body }`, or a closure
    ///
    /// The return that is never taken tells the compiler what the body returns, so that a type
    /// error points into the body and `Ok(Box::new(x))` becomes a `Result<Box<dyn Trait>, E>`.
    fn body(&self) -> TokenStream {
        let (site, runtime, output) = (self.site, &self.runtime, &self.function.output);
        let module = Ident::new(&version_module(), site);
        let statements = self.function.body.stream();
        let mut block = quote_spanned! {site=>
            if false {
                return #runtime::#module::outcome::<#output>();
            }
        };
        block.extend(statements);
        let block = braces(block, self.function.body.span());
        if self.is_async {
            quote_spanned!(site=> async move #block)
        } else {
            quote_spanned!(site=> move || #block)
        }
    }
}

/// The runtime's module for this version of the macro: another version has no such module.
fn version_module() -> String {
    format!("__macro_v{}", env!("CARGO_PKG_VERSION").replace(['.', '-', '+'], "_"))
}

/// `&expr`, also where the user has written the `&`.
fn reference(expr: &Expr, site: Span) -> Expr {
    if let Expr::Reference(_) = expr {
        return expr.clone();
    }
    Expr::Reference(ExprReference {
        attrs: Vec::new(),
        and_token: Token![&](site),
        mutability: None,
        expr: Box::new(expr.clone()),
    })
}

/// Whether an expression only names a value, so that nothing is left to be dropped after it.
fn is_place(expr: &Expr) -> bool {
    match expr {
        Expr::Path(_) | Expr::Lit(_) => true,
        Expr::Field(field) => is_place(&field.base),
        Expr::Index(index) => is_place(&index.expr) && is_place(&index.index),
        Expr::Reference(reference) => is_place(&reference.expr),
        Expr::Paren(paren) => is_place(&paren.expr),
        _ => false,
    }
}
