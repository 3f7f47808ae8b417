//! Tokens out: one call of the runtime's public API.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Expr, ExprPath, ExprReference, Path, Result, Safety, Token};

use crate::args::{Args, Fences};
use crate::check;
use crate::defer::says_nothing;
use crate::duration::{Time, Wait};
use crate::item::{Function, braces, is_owned, mentions};
use crate::key::Key;
use crate::misplaced;
use crate::policy::{OnBusy, OnLost};
use crate::runtime::Runtime;
use crate::spans::respan;
use crate::template::{Part, Template};

/// The attribute: the function under its lock, or as it was and one error.
pub(crate) fn attribute(args: TokenStream, item: TokenStream) -> TokenStream {
    expand(args, item.clone()).unwrap_or_else(|error| {
        if let Some(item) = misplaced::as_it_was(&item) {
            return item;
        }
        let error = error.into_compile_error();
        // An argument that only the attribute uses is no second mistake.
        quote!(#[allow(unused_variables)] #item #error)
    })
}

fn expand(args: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let mut args: Args = syn::parse2(args)?;
    let function = check::check(&mut args, syn::parse2(item))?;
    let printer = Printer::new(&args, &function)?;
    let (locked, beside) = (printer.locked()?, printer.beside()?);
    let mut tokens = function.with_body(locked);
    tokens.extend(beside);
    Ok(tokens)
}

struct Printer<'a> {
    args: &'a Args,
    function: &'a Function,
    is_async: bool,
    runtime: Runtime,
    /// All tokens of ours: so the compiler tells what is wrong with the return type once, and at
    /// the return type, and takes none of our names for the user's.
    site: Span,
}

impl<'a> Printer<'a> {
    fn new(args: &'a Args, function: &'a Function) -> Result<Self> {
        let site = function.output_span.resolved_at(Span::mixed_site());
        let runtime = Runtime::find(args.runtime.as_ref(), site)?;
        let is_async = function.is_async();
        Ok(Self { args, function, is_async, runtime, site })
    }

    /// Input: the body
    ///
    /// Output: `Lock::new(key).ttl(ttl).name("module::function").run(async move { body }).await`
    fn locked(&self) -> Result<TokenStream> {
        let site = self.site;
        let lock = self.lock();
        // What an expression leaves behind, a mutex guard say, must not live as long as the body.
        let (binding, lock) = match self.manager_first() {
            Some(manager) => {
                let inner = quote_spanned!(site=> #manager let __lock = #lock; __lock);
                (
                    Some(quote_spanned!(site=> let __lock = { #inner };)),
                    quote_spanned!(site=> __lock),
                )
            }
            None if self.args.exprs().all(is_place) => (None, lock),
            None => {
                (Some(quote_spanned!(site=> let __lock = #lock;)), quote_spanned!(site=> __lock))
            }
        };
        let call = if self.is_one_call() { self.run(&lock) } else { self.acquire_and_run(&lock)? };
        Ok(quote_spanned!(site=> #binding #call))
    }

    /// What a worker calls the function by.
    fn beside(&self) -> Result<Option<TokenStream>> {
        match &self.args.on_busy {
            OnBusy::Defer(defer) => {
                let (name, delay) = (self.name(), self.time(&defer.delay));
                defer.beside(self.function, &self.runtime, &name, &delay).map(Some)
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

    /// Whether nothing is asked for that stands between acquiring the lock and running the body, or
    /// instead of it.
    fn is_one_call(&self) -> bool {
        let Args { on_busy, guard, fence, .. } = self.args;
        let is_fallback = matches!(on_busy, OnBusy::Fallback(_) | OnBusy::Defer(_));
        !is_fallback && guard.is_none() && fence.is_none() && self.late_message().is_none()
    }

    /// A message that is written for a busy error, and not before.
    fn late_message(&self) -> Option<&Template> {
        self.args.message.as_ref().filter(|message| message.as_plain().is_none())
    }

    /// Output: `lock.recovering(path).map_err(path).run(body).await`
    fn run(&self, lock: &TokenStream) -> TokenStream {
        let method = if self.is_silent() { "run_or_skip" } else { "run" };
        let recovering = match &self.args.on_lost {
            Some(OnLost::Recover(path)) => Some(self.recovering(path)),
            _ => None,
        };
        let map_err = self.map_err().map(|map| {
            let method = Ident::new("map_err", self.there("map_err"));
            quote_spanned!(self.site=> .#method(#map))
        });
        self.call(method, &quote_spanned!(self.site=> #lock #recovering #map_err), &self.body())
    }

    /// Output: `.recovering(recover::<Ret>(path))`
    ///
    /// The path becomes a `fn(Lost, Ret) -> Ret` first, so that a function of another type is told
    /// once, at its path, beside that type.
    fn recovering(&self, path: &ExprPath) -> TokenStream {
        let (output, module) = (&self.function.output, self.runtime.module(self.site));
        let method = Ident::new("recovering", self.there("on_lost"));
        quote_spanned!(self.site=> .#method(#module::recover::<#output>(#path)))
    }

    /// The path becomes a `fn(LockError) -> E` first, as in `recovering`.
    ///
    /// Output: `map::<Ret>(path)`
    fn map_err(&self) -> Option<TokenStream> {
        let (output, module) = (&self.function.output, self.runtime.module(self.site));
        let path = self.args.map_err.as_ref()?;
        Some(quote_spanned!(self.site=> #module::map::<#output>(#path)))
    }

    /// Output: `let lock = match lock.acquire().await { Ok(lock) => lock, Err(error) => return … };
    /// lock.run(body).await`
    fn acquire_and_run(&self, lock: &TokenStream) -> Result<TokenStream> {
        let site = self.site;
        let nothing = TokenStream::new();
        let acquire = if self.args.fence.is_some() { "acquire_fenced" } else { "acquire" };
        let acquired = self.call(acquire, lock, &nothing);
        let (held, fences) = match &self.args.fence {
            Some(Fences::Name(fence)) => (quote_spanned!(site=> (__lock, #fence)), None),
            Some(Fences::Each(names)) => {
                let nth = (0..names.len()).map(Literal::usize_unsuffixed);
                let fences = quote_spanned!(site=> let [#(#names),*] = [#(__fences[#nth]),*];);
                (quote_spanned!(site=> (__lock, __fences)), Some(fences))
            }
            None => (quote_spanned!(site=> __lock), None),
        };
        let guard = self
            .args
            .guard
            .as_ref()
            .map(|guard| quote_spanned!(site=> let #guard = &__lock.share();));
        let instead = match &self.args.on_busy {
            OnBusy::Error | OnBusy::Skip => None,
            OnBusy::Fallback(path) => Some(self.fallback(path)?),
            OnBusy::Defer(defer) => {
                let managers = (self.manager_first(), self.manager());
                let later = defer.later(self.function, managers, site)?;
                Some(self.failure(&later))
            }
        };
        let busy = instead.map(|instead| {
            let condition = quote_spanned!(site=> if __error.is_busy());
            quote_spanned!(site=>
                ::core::result::Result::Err(__error) #condition => return #instead,)
        });
        let error = match self.late_message() {
            Some(message) => {
                let message = self.message(message);
                quote_spanned!(site=> __error.with_message(#message))
            }
            None => quote_spanned!(site=> __error),
        };
        let failed = self.failure(&error);
        let run = self.run(&quote_spanned!(site=> __lock));
        // Moved out of its binding, or a second await would have its room beside that of the body.
        let (first, acquired) = if self.is_async && busy.is_some() {
            let first = quote_spanned!(site=> let __acquired = #acquired;);
            (Some(first), quote_spanned!(site=> { __acquired }))
        } else {
            (None, acquired)
        };
        Ok(quote_spanned! {site=>
            #first
            let #held = match #acquired {
                ::core::result::Result::Ok(__held) => __held,
                #busy
                ::core::result::Result::Err(__error) => return #failed,
            };
            #fences #guard #run
        })
    }

    /// Output: `LockOutcome::from_lock_error(error)`, or what it is where another policy is asked for
    fn failure(&self, error: &TokenStream) -> TokenStream {
        let (site, runtime) = (self.site, &self.runtime);
        match (self.is_silent(), self.map_err()) {
            (false, None) => {
                quote_spanned!(site=> #runtime::LockOutcome::from_lock_error(#error))
            }
            (false, Some(path)) => {
                quote_spanned!(site=> ::core::result::Result::Err(#path(#error)))
            }
            (true, map) => {
                let name = self.name();
                let refused = quote_spanned!(site=> #runtime::SkipOutcome::refused(#name, #error));
                match map {
                    None => refused,
                    Some(map) => {
                        quote_spanned!(site=> ::core::result::Result::map_err(#refused, #map))
                    }
                }
            }
        }
    }

    /// Output: `{ let later: fn(u64, _) -> _ = path; later(id, order).await }`
    ///
    /// The path becomes a function of the wanted type first, so that one of another type is told
    /// once, at its path, beside that type.
    fn fallback(&self, path: &Path) -> Result<TokenStream> {
        let there = path.span().resolved_at(self.site);
        let arguments = self.function.call_arguments("fallback")?;
        let suffix = self.is_async.then(|| quote_spanned!(there=> .await));
        if let Safety::Unsafe(_) = self.function.sig.safety {
            return Ok(quote_spanned!(there=> #path(#(#arguments),*) #suffix));
        }
        let types = self.function.argument_types();
        let output = match &self.function.output {
            output if !self.is_async && is_owned(output) => output.to_token_stream(),
            _ => quote_spanned!(there=> _),
        };
        Ok(quote_spanned! {there=> {
            let __later: fn(#(#types),*) -> #output = #path;
            __later(#(#arguments),*) #suffix
        }})
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
    ///
    /// Output: `"orders.audit"`, or `concat!(module_path!(), "::audit_order")`
    fn name(&self) -> TokenStream {
        name(self.args, self.function, self.site)
    }

    /// Whether an expression outside of the body may take an argument, or a part of it.
    fn takes(&self, name: &Ident) -> bool {
        let mut taking = self.args.taking().filter(|expr| match expr {
            // A manager is borrowed; a key or a time that is an argument itself is taken.
            place if is_place(place) => {
                !self.args.manager.as_ref().is_some_and(|of| std::ptr::eq(of, *place))
            }
            _ => true,
        });
        taking.any(|expr| mentions(expr.to_token_stream(), name))
    }

    /// Whether an argument of the function is used outside of the body.
    fn uses(&self, name: &Ident) -> bool {
        matches!(self.args.on_busy, OnBusy::Fallback(_) | OnBusy::Defer(_))
            || self.args.exprs().any(|expr| mentions(expr.to_token_stream(), name))
    }

    /// The span of an argument's name, for what is made of the argument.
    fn there(&self, argument: &str) -> Span {
        self.args.span_of(argument).resolved_at(self.site)
    }

    /// Output: `Lock::new(key).ttl(ttl).name("module::function").message(message).manager(manager)`
    fn lock(&self) -> TokenStream {
        let site = self.site;
        let lock = self.lock_on(&self.args.key);
        let name = self.name();
        let message = self.args.message.as_ref().and_then(Template::as_plain).map(|message| {
            let method = Ident::new("message", self.there("message"));
            quote_spanned!(site=> .#method(#message))
        });
        let manager = self.manager().map(|manager| {
            let method = Ident::new("manager", self.there("manager"));
            quote_spanned!(site=> .#method(#manager))
        });
        let note = self.args.holder_note.as_ref().map(|template| {
            let (method, note) =
                (Ident::new("holder_note", self.there("holder_note")), self.note(template));
            quote_spanned!(site=> .#method(#note))
        });
        let lease = self.lease();
        quote_spanned!(site=> #lock #lease.name(#name) #message #note #manager)
    }

    fn manager(&self) -> Option<TokenStream> {
        let manager = self.args.manager.as_ref()?;
        let there = manager.span().resolved_at(self.site);
        if is_branching(manager) {
            return Some(quote_spanned!(there=> &__manager));
        }
        Some(reference(manager, there).to_token_stream())
    }

    /// A manager that branches give is named before: behind a `&` each branch would have to be a
    /// manager, and none a reference to one.
    ///
    /// Output: `let manager = if eu { &self.eu } else { &self.us };`
    fn manager_first(&self) -> Option<TokenStream> {
        let manager = self.args.manager.as_ref().filter(|manager| is_branching(manager))?;
        let there = manager.span().resolved_at(self.site);
        Some(quote_spanned!(there=> let __manager = #manager;))
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
                let there = self.there("key");
                let new = match runtime.is_checked() {
                    // An error about a path belongs to the path.
                    true => quote_spanned!(site=> #runtime::Lock::new),
                    false => respan(quote_spanned!(site=> #runtime::Lock::new), there),
                };
                quote_spanned!(site=> #new(#key))
            }
        }
    }

    fn key(&self, key: &Key) -> TokenStream {
        match key {
            Key::Template(template) => self.template(template),
            Key::Branches(branches) => {
                let one = |one: &Key| {
                    let (runtime, key) = (&self.runtime, self.key(one));
                    quote_spanned!(self.site=> #runtime::LockKey::from(#key))
                };
                branches.print(one).into_token_stream()
            }
            Key::Expr(expr) if key.is_constant(&self.function.template_names()) => {
                self.constant(expr)
            }
            other => other.expr().to_token_stream(),
        }
    }

    /// A constant is told of when it has placeholders, which its text cannot fill in.
    ///
    /// Output: `constant_key(ORDER_KEY, &["id"])`
    fn constant(&self, constant: &Expr) -> TokenStream {
        let names = self.function.template_names();
        if names.is_empty() {
            return constant.to_token_stream();
        }
        let site = constant.span().resolved_at(self.site);
        let module = respan(self.runtime.module(site), site);
        let names = names.iter().map(|name| name.unraw().to_string());
        quote_spanned!(site=> #module::constant_key(#constant, &[#(#names),*]))
    }

    /// Output: `.ttl(ttl).renew().max_hold(max_hold).min_hold(min_hold).wait(wait).on_lost(policy)`
    fn lease(&self) -> TokenStream {
        let (site, runtime, args) = (self.site, &self.runtime, self.args);
        let time = |method: &str, time: &Option<Time>| {
            let time = self.time(time.as_ref()?);
            let method = Ident::new(method, self.there(method));
            Some(quote_spanned!(site=> .#method(#time)))
        };
        let ttl = time("ttl", &args.ttl);
        let word = |method: &str, argument: &str| Ident::new(method, self.there(argument));
        let renew = args.renew.then(|| {
            let renew = word("renew", "renew");
            quote_spanned!(site=> .#renew())
        });
        let max_hold = time("max_hold", &args.max_hold);
        let min_hold = time("min_hold", &args.min_hold);
        let wait = match (&args.wait, &args.on_busy) {
            (Some(Wait::For(limit)), _) => {
                let (wait, limit) = (word("wait", "wait"), self.time(limit));
                Some(quote_spanned!(site=> .#wait(#limit)))
            }
            (Some(Wait::Forever), _) => {
                let wait = word("wait_forever", "wait");
                Some(quote_spanned!(site=> .#wait()))
            }
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

    /// Output: `"nightly"`, or `format!("{}", user.name)`
    fn note(&self, template: &Template) -> TokenStream {
        match template.as_plain() {
            Some(text) => quote_spanned!(self.site=> #text),
            None => {
                let note = self.message(template);
                quote_spanned!(self.site=> ::std::fmt::format(#note))
            }
        }
    }

    /// Output: `format_args!("order {} is being audited", id)`
    fn message(&self, template: &Template) -> TokenStream {
        let mut format = String::new();
        for part in &template.parts {
            match part {
                Part::Literal(text) => format.push_str(&text.replace('{', "{{").replace('}', "}}")),
                Part::Value(_) => format.push_str("{}"),
            }
        }
        let values = template.exprs();
        let site = template.literal.span().resolved_at(self.site);
        quote_spanned!(site=> ::core::format_args!(#format, #(#values),*))
    }

    /// Output: `async move { if false { return outcome::<Ret>(); } body }`, or a closure
    ///
    /// The return that is never taken tells the compiler what the body returns, so that a type
    /// error points into the body and `Ok(Box::new(x))` becomes a `Result<Box<dyn Trait>, E>`.
    fn body(&self) -> TokenStream {
        let (site, output) = (self.site, &self.function.output);
        let module = self.runtime.module(site);
        let statements = self.function.body.stream();
        let moved = self.function.moved(|name| self.takes(name), |name| self.uses(name), site);
        let mut block = quote_spanned! {site=>
            if false {
                return #module::outcome::<#output>();
            }
            #moved
        };
        block.extend(statements);
        // As the user's own tokens, so that the compiler names the variables in what it says.
        let there = self.function.body.span();
        let block = braces(block, there);
        if self.is_async {
            // In braces of ours, so that what is wrong with the return type is told there.
            let body = quote_spanned!(there=> async move #block);
            quote_spanned!(site=> { #body })
        } else {
            quote_spanned!(there=> move || #block)
        }
    }
}

/// Under which name a function's locks and stored calls are told of.
fn name(args: &Args, function: &Function, site: Span) -> TokenStream {
    match &args.name {
        Some(name) => quote!(#name),
        None => {
            let name = format!("::{}", function.sig.ident.unraw());
            quote_spanned!(site=> ::core::concat!(::core::module_path!(), #name))
        }
    }
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

/// Whether each branch of an expression may give a reference.
fn is_branching(expr: &Expr) -> bool {
    match expr {
        Expr::Paren(paren) => is_branching(&paren.expr),
        Expr::If(_) | Expr::Match(_) | Expr::Block(_) | Expr::Unsafe(_) | Expr::Try(_) => true,
        _ => false,
    }
}
