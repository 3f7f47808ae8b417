//! The expansion: one call of the runtime's public API.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{ExprPath, Path, Result, Safety};

use crate::check;
use crate::parse::args::Args;
use crate::parse::boxed;
use crate::parse::item::{Function, Shape, braces};
use crate::parse::key::Key;
use crate::parse::path::{is_owned, is_place, mentions};
use crate::parse::policy::{AfterLoss, OnBusy};
use crate::parse::returns;
use crate::parse::runtime::Runtime;
use crate::parse::spans::respan;
use crate::parse::template::Template;
use crate::parse::values::Fences;
use crate::print::misplaced;

/// Expands the attribute: the function under its lock, or the unchanged function and one error.
pub(crate) fn attribute(args: TokenStream, item: TokenStream) -> TokenStream {
    expand(args, item.clone()).unwrap_or_else(|error| {
        if let Some(item) = misplaced::as_it_was(&item) {
            return item;
        }
        let error = error.into_compile_error();
        // An argument that only the attribute uses must not cause a second message.
        quote!(#[allow(unused_variables)] #item #error)
    })
}

fn expand(args: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let mut args: Args = syn::parse2(args)?;
    let function = check::check(&mut args, syn::parse2(item))?;
    let printer = Printer::new(&args, &function)?;
    let mut tokens = function.with_body(printer.locked()?);
    if let OnBusy::Defer(defer) = &args.on_busy {
        let name = printer.name();
        let time = |time: &_| printer.time(time);
        tokens.extend(defer.beside(&function, &printer.runtime, &name, time)?);
    }
    Ok(tokens)
}

pub(crate) struct Printer<'a> {
    pub(crate) args: &'a Args,
    pub(crate) function: &'a Function,
    pub(crate) is_async: bool,
    pub(crate) runtime: Runtime,
    /// The span of all tokens of the macro: so the compiler reports a wrong return type once, at
    /// the return type, and keeps the macro's names apart from the user's.
    pub(crate) site: Span,
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
        let mut lock = self.lock();
        if self.is_one_call() {
            lock.extend(self.run_policy());
        }
        // A lock on several keys knows which of the fences is which.
        let variable =
            Ident::new(if self.has_list_of_fences() { "__keys" } else { "__lock" }, site);
        // A temporary of an expression, such as a mutex guard, must not live as long as the body.
        let binding = match self.manager_first() {
            Some(manager) => Some(quote_spanned! {site=>
                let #variable = { #manager let __lock = #lock; __lock };
            }),
            None if self.args.exprs().all(is_place) && !self.has_list_of_fences() => None,
            None => Some(quote_spanned!(site=> let #variable = #lock;)),
        };
        let lock = if binding.is_some() { quote_spanned!(site=> #variable) } else { lock };
        let call = if self.is_one_call() {
            self.call("run", &lock, &self.body())
        } else {
            self.acquire_and_run(&lock)?
        };
        Ok(quote_spanned!(site=> #binding #call))
    }

    /// Whether a busy lock is not reported: the caller gets the return type's "nothing".
    fn is_silent(&self) -> bool {
        match self.args.on_busy {
            OnBusy::Error | OnBusy::Fallback(_) | OnBusy::Reuse(_) => false,
            OnBusy::Skip => true,
            OnBusy::Defer(_) => returns::says_nothing(&self.function.output),
        }
    }

    /// Whether one call both acquires the lock and runs the body: no argument adds code between the
    /// two, or in place of the body.
    pub(crate) fn is_one_call(&self) -> bool {
        let Args { on_busy, guard, fence, .. } = self.args;
        let is_fallback = matches!(on_busy, OnBusy::Fallback(_) | OnBusy::Defer(_));
        !is_fallback && guard.is_none() && fence.is_none() && self.late_message().is_none()
    }

    /// A message with placeholders, which is formatted for a busy error only.
    fn late_message(&self) -> Option<&Template> {
        self.args.message.as_ref().filter(|message| message.as_plain().is_none())
    }

    /// What `run` returns when the lock is busy or lost.
    ///
    /// Output: `.reuse(keep).same(text).skip_when_busy().recovering(path).map_err(path)`
    fn run_policy(&self) -> TokenStream {
        let skip = self.is_silent().then(|| quote_spanned!(self.site=> .skip_when_busy()));
        let recovering = match &self.args.on_lost {
            Some(AfterLoss::Recover(path)) => Some(self.recovering(path)),
            _ => None,
        };
        let map_err = self.map_err().map(|map| self.set("map_err", "map_err", map));
        let reuse = self.reuse();
        quote_spanned!(self.site=> #reuse #skip #recovering #map_err)
    }

    fn reuse(&self) -> Option<TokenStream> {
        let OnBusy::Reuse(reuse) = &self.args.on_busy else { return None };
        let keep = match &reuse.keep {
            Some(keep) => self.time(keep),
            None => quote_spanned!(self.site=> ::core::time::Duration::ZERO),
        };
        let keep = self.set("reuse", "on_busy", keep);
        let same = reuse.same.as_ref().map(|same| self.set("same", "on_busy", self.template(same)));
        Some(quote_spanned!(self.site=> #keep #same))
    }

    /// Output: `.recovering(recover::<Ret>(path))`
    ///
    /// The path becomes a `fn(Lost, Ret) -> Ret` first, so that the compiler reports a function of
    /// another type once, at its path, with the expected type.
    fn recovering(&self, path: &ExprPath) -> TokenStream {
        let output = &self.function.output;
        let module = self.runtime.private(self.site);
        let path = quote_spanned!(self.site=> #module::recover::<#output>(#path));
        self.set("recovering", "on_lost", path)
    }

    /// The path becomes a `fn(LockError) -> E` first, as in `recovering`.
    ///
    /// Output: `map::<Ret, _>(path)`
    fn map_err(&self) -> Option<TokenStream> {
        let path = self.args.map_err.as_ref()?;
        let module = self.runtime.private(self.site);
        let output = returns::without_erased_value(&self.function.output);
        // With the span of `run`, so that a type that is no `Result` is reported once.
        let output = respan(output.to_token_stream(), self.site);
        Some(quote_spanned!(self.site=> #module::map::<#output, _>(#path)))
    }

    /// Output: `let lock = match lock.acquire().await { Ok(lock) => lock, Err(e) => return … };
    /// lock.run(body).await`
    fn acquire_and_run(&self, lock: &TokenStream) -> Result<TokenStream> {
        let site = self.site;
        let fences = self.fences();
        let guard = self.args.guard.as_ref().map(|guard| {
            let there = guard.span().resolved_at(site);
            let fences = self.args.fence.as_ref().map(Fences::names).unwrap_or_default();
            // Twice the user's name: the compiler shows it to a body that moves it into a task. The
            // guard has the fences, too, so that their own names need no other use.
            quote_spanned! {there=>
                let #guard = __lock.handle(); let #guard = &#guard; #(let _ = &#fences;)*
            }
        });
        let (first, acquired) = self.acquired(lock)?;
        let policy = self.run_policy();
        let run = self.call("run", &quote_spanned!(site=> __lock #policy), &self.body());
        let superseded = self.superseded();
        Ok(quote_spanned!(site=> #first let __lock = #acquired; #fences #superseded #guard #run))
    }

    /// Output: `let superseded = …; if let Err(error) = superseded { return … }`
    fn superseded(&self) -> Option<TokenStream> {
        let OnBusy::Defer(defer) = &self.args.on_busy else { return None };
        let managers = (self.manager_first(), self.manager());
        let superseded = defer.superseded(self.function, managers, self.site)?;
        let failed = self.failure(&quote_spanned!(self.site=> __error));
        Some(quote_spanned! {self.site=>
            let __superseded = #superseded;
            if let ::core::result::Result::Err(__error) = __superseded {
                return #failed;
            }
        })
    }

    /// Whether the fences are those of several keys, in the order of the keys.
    fn has_list_of_fences(&self) -> bool {
        let Some(fences) = &self.args.fence else { return false };
        matches!(self.args.key, Key::Keys(_)) || fences.names().len() > 1
    }

    /// The list of fences is dropped before the body, as it would make each future larger.
    ///
    /// Output: `let Some(fence) = lock.fence() else { unreachable!() };`, or `let (debit, credit) =
    /// { let fences = keys.fences(&lock); (fences[0], fences[1]) };`
    fn fences(&self) -> Option<TokenStream> {
        let site = self.site;
        let names = self.args.fence.as_ref()?.names();
        let name = names.first()?;
        Some(if !self.has_list_of_fences() {
            quote_spanned! {site=>
                let ::core::option::Option::Some(#name) = __lock.fence() else {
                    ::core::unreachable!("the lock is fenced")
                };
            }
        } else if let Key::Keys(_) = self.args.key {
            // As many as there are keys, which is known at run time.
            quote_spanned!(site=> let #name = __keys.fences(&__lock);)
        } else {
            // `check` has compared the numbers.
            let nth = (0..names.len()).map(Literal::usize_unsuffixed);
            quote_spanned! {site=>
                let (#(#names),*) = {
                    let __fences = __keys.fences(&__lock);
                    (#(__fences[#nth]),*)
                };
            }
        })
    }

    /// Output: `match lock.acquire().await { Ok(held) => held, Err(error) => return … }`, and a
    /// statement before it
    fn acquired(&self, lock: &TokenStream) -> Result<(Option<TokenStream>, TokenStream)> {
        let site = self.site;
        let acquired = self.call("acquire", lock, &TokenStream::new());
        let instead = match &self.args.on_busy {
            OnBusy::Error | OnBusy::Skip | OnBusy::Reuse(_) => None,
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
        // Moved out of its binding: else the future has space for the second await beside the body.
        let (first, acquired) = if self.is_async && busy.is_some() {
            let first = quote_spanned!(site=> let __acquired = #acquired;);
            (Some(first), quote_spanned!(site=> { __acquired }))
        } else {
            (None, acquired)
        };
        let held = quote_spanned! {site=>
            match #acquired {
                ::core::result::Result::Ok(__held) => __held,
                #busy
                ::core::result::Result::Err(__error) => return #failed,
            }
        };
        Ok((first, held))
    }

    /// Output: `LockOutcome::from_lock_error(error)`, or the conversion that another policy needs
    fn failure(&self, error: &TokenStream) -> TokenStream {
        let site = self.site;
        let runtime = &self.runtime;
        let name = self.name();
        let refused = quote_spanned!(site=> #runtime::SkipOutcome::refused(#name, #error));
        match (self.is_silent(), self.map_err()) {
            (true, None) => refused,
            (true, Some(map)) => {
                quote_spanned!(site=> ::core::result::Result::map_err(#refused, #map))
            }
            (false, None) => {
                quote_spanned!(site=> #runtime::LockOutcome::from_lock_error(#error))
            }
            (false, Some(path)) => {
                quote_spanned!(site=> ::core::result::Result::Err(#path(#error)))
            }
        }
    }

    /// Output: `{ let later: fn(u64, _) -> _ = path; later(id, order).await }`
    ///
    /// The path becomes a function of the expected type first, so that the compiler reports another
    /// type once, at the path, with the expected type.
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

    /// Output: `lock.run(argument).await`, or `lock.run_blocking(argument)` in a sync function
    fn call(&self, method: &str, lock: &TokenStream, argument: &TokenStream) -> TokenStream {
        let ending = if self.is_async { "" } else { "_blocking" };
        let method = Ident::new(&format!("{method}{ending}"), self.site);
        let suffix = self.is_async.then(|| quote_spanned!(self.site=> .await));
        quote_spanned!(self.site=> #lock.#method(#argument) #suffix)
    }

    /// The lock's name, for its holder, logs and metrics.
    ///
    /// Output: `"orders.audit"`, or `concat!(module_path!(), "::audit_order")`
    pub(crate) fn name(&self) -> TokenStream {
        match &self.args.name {
            Some(name) => quote!(#name),
            None => {
                let name = format!("::{}", self.function.sig.ident.unraw());
                quote_spanned!(self.site=> ::core::concat!(::core::module_path!(), #name))
            }
        }
    }

    /// Whether an expression outside of the body may move an argument, or a part of it.
    fn takes(&self, name: &Ident) -> bool {
        self.args.taking().into_iter().any(|expr| mentions(expr.to_token_stream(), name))
    }

    /// Whether an argument of the function is used outside of the body.
    pub(crate) fn uses(&self, name: &Ident) -> bool {
        matches!(self.args.on_busy, OnBusy::Fallback(_) | OnBusy::Defer(_))
            || self.args.exprs().any(|expr| mentions(expr.to_token_stream(), name))
    }

    /// The span of an argument's name, for the tokens that are made of the argument.
    pub(crate) fn there(&self, argument: &str) -> Span {
        self.args.span_of(argument).resolved_at(self.site)
    }

    /// Output: `async move { if false { return outcome::<Ret>(); } body }`, or a closure
    ///
    /// The branch that never runs gives the body its return type, so that a type error points into
    /// the body and `Ok(Box::new(x))` becomes a `Result<Box<dyn Trait>, E>`.
    fn body(&self) -> TokenStream {
        let site = self.site;
        let output = &self.function.output;
        let module = self.runtime.private(site);
        let statements = match self.function.shape {
            Shape::Boxed(_) => {
                boxed::with_uses(self.function.body.stream(), |name| self.uses(name))
            }
            Shape::Async | Shape::Blocking => self.function.body.stream(),
        };
        let moved = self.function.moved(|name| self.takes(name), |name| self.uses(name), site);
        let runtime = &self.runtime;
        let of_site = respan(output.to_token_stream(), site);
        let outcome = match (self.args.map_err.is_some(), self.is_silent()) {
            (true, _) => quote_spanned!(site=> #module::outcome::<#output>()),
            // By its path: the compiler names no bound then when the return type has no `From`.
            (false, false) => quote_spanned! {site=>
                <#of_site as #runtime::LockOutcome>::outcome()
            },
            (false, true) => quote_spanned! {site=>
                <#of_site as #runtime::SkipOutcome>::outcome()
            },
        };
        let mut block = quote_spanned! {site=>
            if false {
                return #outcome;
            }
            #moved
        };
        block.extend(statements);
        // With the user's span, so that the compiler names the variables in its messages.
        let there = self.function.body.span();
        let block = braces(block, there);
        if self.is_async {
            // In braces of the macro, so that a wrong return type is reported there.
            let body = quote_spanned!(there=> async move #block);
            quote_spanned!(site=> { #body })
        } else {
            quote_spanned!(there=> move || #block)
        }
    }
}
