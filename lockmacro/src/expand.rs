//! Tokens out: one call of the runtime's public API.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Expr, ExprPath, ExprReference, Path, Result, Token, parse_quote_spanned};

use crate::args::{Args, Fences};
use crate::check;
use crate::defer::says_nothing;
use crate::duration::{Time, Wait};
use crate::item::{Function, braces};
use crate::key::Key;
use crate::policy::{OnBusy, OnLost};
use crate::template::{Part, Template, respan};

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
    let printer = Printer::new(&args, &function);
    let (locked, beside) = (printer.locked()?, printer.beside()?);
    let mut tokens = function.with_body(locked);
    tokens.extend(beside);
    Ok(tokens)
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
        let is_async = function.is_async();
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
        let call = if self.is_one_call() { self.run(&lock) } else { self.acquire_and_run(&lock)? };
        Ok(quote_spanned!(site=> #binding #call))
    }

    /// What a worker calls the function by.
    fn beside(&self) -> Result<Option<TokenStream>> {
        match &self.args.on_busy {
            OnBusy::Defer(defer) => {
                let delay = self.time(&defer.delay);
                defer.beside(self.function, &self.runtime, &delay).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Whether the caller is told nothing when the lock is busy, because the return type says nothing.
    fn is_silent(&self) -> bool {
        match self.args.on_busy {
            OnBusy::Error | OnBusy::Fallback(_) => false,
            OnBusy::Skip => true,
            OnBusy::Defer(_) => says_nothing(&self.function.output),
        }
    }

    /// Whether nothing is asked for that stands between acquiring the lock and running the body.
    fn is_one_call(&self) -> bool {
        let Args { on_busy, on_lost, guard, fence, .. } = self.args;
        let is_fallback = matches!(on_busy, OnBusy::Fallback(_) | OnBusy::Defer(_));
        let is_recovery = matches!(on_lost, Some(OnLost::Recover(_)));
        !is_fallback && !is_recovery && guard.is_none() && fence.is_none()
    }

    /// Output: `lock.run(body).await`
    fn run(&self, lock: &TokenStream) -> TokenStream {
        let method = if self.is_silent() { "run_or_skip" } else { "run" };
        match &self.args.on_lost {
            Some(OnLost::Recover(path)) => {
                let lock = self.recovering(lock, path);
                self.call(method, &lock, &self.body())
            }
            _ => self.call(method, lock, &self.body()),
        }
    }

    /// Output: `lock.recovering(path)`
    ///
    /// The path is called in a closure of a known type, so that a function of another one is told
    /// once, and at its path.
    fn recovering(&self, lock: &TokenStream, path: &ExprPath) -> TokenStream {
        let there = path.span().resolved_at(self.site);
        let output = &self.function.output;
        let recover = quote_spanned!(there=> |lost, value| #path(lost, value));
        quote_spanned!(self.site=> #lock.recovering::<#output, _>(#recover))
    }

    /// Output: `match lock.acquire().await { Ok(lock) => lock.run(body).await, … }`
    fn acquire_and_run(&self, lock: &TokenStream) -> Result<TokenStream> {
        let (site, runtime) = (self.site, &self.runtime);
        let nothing = TokenStream::new();
        let acquire = if self.args.fence.is_some() { "acquire_fenced" } else { "acquire" };
        let acquired = self.call(acquire, lock, &nothing);
        let (held, fences) = match &self.args.fence {
            Some(Fences::Name(fence)) => (quote_spanned!(site=> (lock, #fence)), None),
            Some(Fences::Each(names)) => {
                let nth = (0..names.len()).map(Literal::usize_unsuffixed);
                let fences = quote_spanned!(site=> let [#(#names),*] = [#(fences[#nth]),*];);
                (quote_spanned!(site=> (lock, fences)), Some(fences))
            }
            None => (quote_spanned!(site=> lock), None),
        };
        let guard = self
            .args
            .guard
            .as_ref()
            .map(|guard| quote_spanned!(site=> let #guard = &lock.share();));
        let mut run = self.run(&quote_spanned!(site=> lock));
        if fences.is_some() || guard.is_some() {
            run = quote_spanned!(site=> { #fences #guard #run });
        }
        let failure = |error: TokenStream| {
            if self.is_silent() {
                let name = self.name();
                quote_spanned!(site=> #runtime::SkipOutcome::refused(#name, #error))
            } else {
                quote_spanned!(site=> #runtime::LockOutcome::from_lock_error(#error))
            }
        };
        let instead = match &self.args.on_busy {
            OnBusy::Error | OnBusy::Skip => None,
            OnBusy::Fallback(path) => Some(self.fallback(path)?),
            OnBusy::Defer(defer) => {
                let later = defer.later(self.function, self.manager().as_ref(), site)?;
                Some(failure(later))
            }
        };
        let busy = instead.map(|instead| {
            let condition = quote_spanned!(site=> if busy.is_busy());
            quote_spanned!(site=> ::core::result::Result::Err(busy) #condition => #instead,)
        });
        let failed = failure(quote_spanned!(site=> error));
        Ok(quote_spanned! {site=>
            match #acquired {
                ::core::result::Result::Ok(#held) => #run,
                #busy
                ::core::result::Result::Err(error) => #failed,
            }
        })
    }

    /// Output: `path(id, order).await`
    fn fallback(&self, path: &Path) -> Result<TokenStream> {
        // An error about the call belongs to the path, not to the arguments of this function.
        let there = path.span();
        let mut arguments = self.function.call_arguments("fallback")?;
        for argument in &mut arguments {
            argument.set_span(there.resolved_at(argument.span()));
        }
        let there = there.resolved_at(self.site);
        let suffix = self.is_async.then(|| quote_spanned!(there=> .await));
        Ok(quote_spanned!(there=> #path(#(#arguments),*) #suffix))
    }

    /// Output: `lock.run(argument).await`, or what it is called in a sync function.
    fn call(&self, method: &str, lock: &TokenStream, argument: &TokenStream) -> TokenStream {
        let method = match (method, method.strip_prefix("run")) {
            (method, _) if self.is_async => method.to_owned(),
            (_, Some(kind)) => format!("run_blocking{kind}"),
            (method, None) => format!("{method}_blocking"),
        };
        let method = Ident::new(&method, self.site);
        let suffix = self.is_async.then(|| quote_spanned!(self.site=> .await));
        quote_spanned!(self.site=> #lock.#method(#argument) #suffix)
    }

    /// Under which name the lock is held and told of.
    fn name(&self) -> String {
        self.function.sig.ident.unraw().to_string()
    }

    /// Output: `Lock::new(key).ttl(ttl).name("function").message(message).manager(manager)`
    fn lock(&self) -> TokenStream {
        let site = self.site;
        let lock = self.lock_on(&self.args.key);
        let name = self.name();
        let message = self.args.message.as_ref().map(|template| {
            let message = self.message(template);
            quote_spanned!(site=> .message(#message))
        });
        let note = self.args.holder_note.as_ref().map(|template| {
            let note = self.message(template);
            quote_spanned!(site=> .holder_note(#note))
        });
        let manager = self.manager().map(|manager| quote_spanned!(site=> .manager(#manager)));
        let lease = self.lease();
        quote_spanned!(site=> #lock #lease.name(#name) #message #note #manager)
    }

    fn manager(&self) -> Option<TokenStream> {
        let manager = self.args.manager.as_ref()?;
        let there = manager.span().resolved_at(self.site);
        Some(reference(manager, there).to_token_stream())
    }

    /// Output: `Lock::new(key)`, `Lock::many([key, key])` or `Lock::many(keys)`
    fn lock_on(&self, key: &Key) -> TokenStream {
        let (site, runtime) = (self.site, &self.runtime);
        // An error about a value belongs to the value.
        let there = |expr: &Expr| expr.span().resolved_at(site);
        match key {
            Key::Several(keys) => {
                // A list has values of one type: templates have, and plain texts.
                let is_plain = |key: &Key| Some(key.template()?.as_plain().is_some());
                let kind = keys.first().and_then(is_plain);
                let alike = kind.is_some() && keys.iter().all(|key| is_plain(key) == kind);
                let keys = keys.iter().map(|key| {
                    let there = key.expr().map_or(site, there);
                    match self.key(key) {
                        key if alike => key,
                        key => quote_spanned!(there=> #runtime::LockKey::from(#key)),
                    }
                });
                quote_spanned!(site=> #runtime::Lock::many([#(#keys),*]))
            }
            Key::Keys(keys) => {
                let runtime = respan(runtime.to_token_stream(), there(keys));
                quote_spanned!(there(keys)=> #runtime::Lock::many(#keys))
            }
            one => {
                let key = self.key(one);
                quote_spanned!(site=> #runtime::Lock::new(#key))
            }
        }
    }

    fn key(&self, key: &Key) -> TokenStream {
        match key {
            Key::Template(template) => self.template(template),
            other => other.expr().to_token_stream(),
        }
    }

    /// Output: `.ttl(ttl).renew().max_hold(max_hold).min_hold(min_hold).wait(wait).on_lost(policy)`
    fn lease(&self) -> TokenStream {
        let (site, runtime, args) = (self.site, &self.runtime, self.args);
        let time = |method: &str, time: &Option<Time>| {
            let time = self.time(time.as_ref()?);
            let method = Ident::new(method, site);
            Some(quote_spanned!(site=> .#method(#time)))
        };
        let ttl = time("ttl", &args.ttl);
        let renew = args.renew.then(|| quote_spanned!(site=> .renew()));
        let max_hold = time("max_hold", &args.max_hold);
        let min_hold = time("min_hold", &args.min_hold);
        let wait = match (&args.wait, &args.on_busy) {
            (Some(Wait::For(limit)), _) => {
                let limit = self.time(limit);
                Some(quote_spanned!(site=> .wait(#limit)))
            }
            (Some(Wait::Forever), _) => Some(quote_spanned!(site=> .wait_forever())),
            (Some(Wait::Never), _) => Some(self.wait_never()),
            // `run_or_skip` says it by itself.
            (None, OnBusy::Skip) if !self.is_one_call() => Some(self.wait_never()),
            (None, _) => None,
        };
        let on_lost = match args.on_lost {
            // What happens by itself.
            None | Some(OnLost::Cancel) => None,
            Some(OnLost::Error) if !self.is_async => None,
            Some(OnLost::Error) => Some(quote_spanned!(site=> .on_lost(#runtime::OnLost::Error))),
            Some(OnLost::Finish) => Some(quote_spanned!(site=> .on_lost(#runtime::OnLost::Finish))),
            // The body is run in another way.
            Some(OnLost::Recover(_)) => None,
        };
        quote_spanned!(site=> #ttl #renew #max_hold #min_hold #wait #on_lost)
    }

    /// Output: `.wait(Duration::ZERO)`
    fn wait_never(&self) -> TokenStream {
        quote_spanned!(self.site=> .wait(::core::time::Duration::ZERO))
    }

    /// Output: `Duration::from_secs(300)`
    fn time(&self, time: &Time) -> TokenStream {
        let site = self.site;
        match time {
            Time::Literal(time) if time.subsec_millis() == 0 => {
                let seconds = Literal::u64_unsuffixed(time.as_secs());
                quote_spanned!(site=> ::core::time::Duration::from_secs(#seconds))
            }
            Time::Literal(time) => {
                let millis = Literal::u128_unsuffixed(time.as_millis());
                quote_spanned!(site=> ::core::time::Duration::from_millis(#millis))
            }
            Time::Expr(expr) => expr.to_token_stream(),
        }
    }

    /// Output: `LockKey::template("order:<id>").literal("order:").value(&id)`
    fn template(&self, template: &Template) -> TokenStream {
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
