//! The attribute's arguments as data.

use proc_macro2::{Ident, Span, TokenTree};
use quote::ToTokens as _;
use syn::ext::IdentExt as _;
use syn::parse::ParseStream;
use syn::visit::Visit as _;
use syn::visit_mut::VisitMut as _;
use syn::{Error, Expr, ExprPath, Lit, LitStr, Path, Result, Token};

use crate::messages;
use crate::messages::names::{example, unknown};
use crate::parse::duration::{self, ANY, TTL, Time, WaitSetting};
use crate::parse::item::Function;
use crate::parse::key::Key;
use crate::parse::path::{Groups, mentions};
use crate::parse::policy::{self, AfterLoss, OnBusy};
use crate::parse::sharing::Sharing;
use crate::parse::taking::Taken;
use crate::parse::template::Template;
use crate::parse::values::{
    Fences, equals, parse_bare, parse_binding, parse_fences, parse_manager, parse_map_err,
    parse_name, parse_runtime, text,
};

#[derive(Default)]
pub(crate) struct Args {
    pub(crate) key: Key,
    /// `None` for an exclusive lock.
    pub(crate) sharing: Option<Sharing>,
    /// `None` for the default lease of the runtime, which is renewed.
    pub(crate) ttl: Option<Time>,
    pub(crate) renew: bool,
    pub(crate) max_hold: Option<Time>,
    pub(crate) min_hold: Option<Time>,
    /// `None` for the manager's default wait, which is mostly none.
    pub(crate) wait: Option<WaitSetting>,
    pub(crate) on_busy: OnBusy,
    pub(crate) on_lost: Option<AfterLoss>,
    /// Whether the caller gets the value before the lock is released.
    pub(crate) releases_in_background: bool,
    /// The body's name for the guard.
    pub(crate) guard: Option<Ident>,
    /// The body's names for the fences.
    pub(crate) fence: Option<Fences>,
    pub(crate) message: Option<Template>,
    pub(crate) holder_note: Option<Template>,
    pub(crate) manager: Option<Expr>,
    /// A function that converts a `LockError` into the body's error.
    pub(crate) map_err: Option<ExprPath>,
    /// The lock's name in logs and metrics, if not the function's path.
    pub(crate) name: Option<LitStr>,
    /// The runtime's path, if it is not `::lockmacro_runtime`.
    pub(crate) runtime: Option<Path>,
    /// The names of the arguments in the attribute, for the spans of messages.
    names: Vec<Ident>,
    /// The mistakes in single arguments.
    pub(crate) faults: Vec<Error>,
    /// The arguments with mistakes, which are compared with nothing.
    faulty: Vec<String>,
    /// Whether something could not be read, which may be any argument.
    is_unclear: bool,
}

impl Args {
    /// Continues after a mistake, so that all mistakes are reported: see [`Args::faults`].
    ///
    /// `function` has the attribute, if it could be read.
    pub(crate) fn parse(input: ParseStream, function: Option<&Function>) -> Result<Self> {
        let mut args = Self::default();
        while !input.is_empty() {
            let is_at_end = |input: ParseStream| input.is_empty() || input.peek(Token![,]);
            let mut read = args.read(input, function);
            if read.is_ok() && !is_at_end(input) {
                args.is_unclear = true;
                read = Err(input.error(messages::NO_COMMA));
            }
            args.faults.extend(read.err());
            while !is_at_end(input) {
                input.parse::<TokenTree>()?;
            }
            input.parse::<Option<Token![,]>>()?;
        }
        if args.are_right(&[]) && !args.has("key") {
            args.faults.push(Error::new(Span::call_site(), messages::NO_KEY));
        }
        Ok(args)
    }

    fn read(&mut self, input: ParseStream, function: Option<&Function>) -> Result<()> {
        let name = self.name(input).inspect_err(|_| self.is_unclear = true)?;
        if self.has(&name.to_string()) {
            return Err(Error::new(name.span(), messages::given_twice(&name)));
        }
        self.names.push(name.clone());
        self.set(&name, input, function).inspect_err(|_| self.faulty.push(name.to_string()))
    }

    /// Reads the name of an argument, and refuses a value without one.
    fn name(&self, input: ParseStream) -> Result<Ident> {
        if input.peek(Lit) {
            let value: Lit = input.parse()?;
            let shown = value.to_token_stream();
            let message = match &value {
                _ if input.peek(Token![=]) => messages::NAME_IN_QUOTES.to_owned(),
                Lit::Str(_) if !self.has("key") => {
                    messages::value_alone(&shown, format!("key = {shown}"))
                }
                _ => messages::value_alone(&shown, "ttl = \"300s\""),
            };
            return Err(Error::new(value.span(), message));
        }
        let name = input.call(Ident::parse_any).map_err(|_| input.error(messages::NO_NAME))?;
        match example(&name.to_string()) {
            Some(_) => Ok(name),
            None => Err(Error::new(name.span(), unknown(&name.to_string()))),
        }
    }

    fn set(&mut self, name: &Ident, input: ParseStream, function: Option<&Function>) -> Result<()> {
        let argument = name.to_string();
        match argument.as_str() {
            "shared" => self.sharing = parse_bare(input, name)?.then_some(Sharing::Shared),
            "renew" => self.renew = parse_bare(input, name)?,
            _ => {
                equals(input, name)?;
                let value = self.value(input, &argument)?;
                self.set_value(&argument, value, function)?;
            }
        }
        Ok(())
    }

    fn set_value(&mut self, name: &str, value: Expr, function: Option<&Function>) -> Result<()> {
        let example = example(name).unwrap_or_default();
        let text = |value| text(&value, example);
        match name {
            "key" => self.key = Key::parse(value, function)?,
            "permits" => self.sharing = Some(Sharing::permits(value, 2)?),
            "ttl" => self.ttl = Some(duration::time("ttl = {}", value, &TTL)?),
            "max_hold" => self.max_hold = Some(duration::time("max_hold = {}", value, &ANY)?),
            "min_hold" => self.min_hold = Some(duration::time("min_hold = {}", value, &ANY)?),
            "wait" => self.wait = Some(duration::wait(value)?),
            "on_busy" => self.on_busy = policy::on_busy(value, function)?,
            "on_lost" => self.on_lost = Some(policy::on_lost(value)?),
            "release" => self.releases_in_background = policy::release(value)?,
            "guard" => self.guard = Some(parse_binding(&value, example)?),
            "fence" => self.fence = Some(parse_fences(value, example)?),
            "message" => self.message = Some(Template::text(text(value)?, function)?),
            "holder_note" => self.holder_note = Some(Template::text(text(value)?, function)?),
            "manager" => self.manager = Some(parse_manager(value)?),
            "map_err" => self.map_err = Some(parse_map_err(value)?),
            "name" => self.name = Some(parse_name(text(value)?, function)?),
            _ => self.runtime = Some(parse_runtime(value)?),
        }
        Ok(())
    }

    fn value(&mut self, input: ParseStream, name: &str) -> Result<Expr> {
        // On a fork: tokens left over in brackets would be a second error.
        if let Err(error) = input.fork().parse::<Expr>() {
            // A comma may belong to the value.
            self.is_unclear = true;
            while input.parse::<TokenTree>().is_ok() {}
            let example = example(name).unwrap_or_default();
            return Err(Error::new(error.span(), messages::unreadable(name, &error, example)));
        }
        let mut value = input.parse()?;
        Groups.visit_expr_mut(&mut value);
        Ok(value)
    }

    /// Every expression that is evaluated before the lock is acquired.
    pub(crate) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.keys().chain(self.borrowed())
    }

    /// Whether an expression may move an argument, or a part of it, before the body gets it.
    pub(crate) fn takes(&self, name: &Ident) -> bool {
        let mut taken = Taken::default();
        self.keys().for_each(|key| taken.visit_expr(key));
        self.borrowed().for_each(|expr| taken.visit_borrowed(expr));
        mentions(taken.0, name)
    }

    /// The keys that are expressions, which become values.
    fn keys(&self) -> impl Iterator<Item = &Expr> {
        self.key.each().iter().filter_map(Key::expr)
    }

    /// The values of placeholders and the manager, which are borrowed, and the times and the
    /// numbers of permits, which are copied.
    fn borrowed(&self) -> impl Iterator<Item = &Expr> {
        let templates = self.key.each().iter().filter_map(Key::template);
        let texts = templates.chain(&self.message).chain(&self.holder_note);
        let reuse = self.on_busy.reuse();
        let same = reuse.and_then(|reuse| reuse.same.as_ref());
        let placeholders = texts.chain(same).flat_map(Template::exprs);
        let times = [&self.ttl, &self.max_hold, &self.min_hold].into_iter().flatten();
        let times = times.chain(self.wait.as_ref().and_then(WaitSetting::limit));
        let times = times.chain(reuse.and_then(|reuse| reuse.keep.as_ref())).filter_map(Time::expr);
        let permits = self.key.each().iter().filter_map(Key::sharing).chain(&self.sharing);
        placeholders.chain(times).chain(permits.filter_map(Sharing::expr)).chain(&self.manager)
    }

    /// Whether an argument was written.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|written| written == name)
    }

    /// The span of an argument's name.
    pub(crate) fn span_of(&self, name: &str) -> Span {
        let written = self.names.iter().find(|written| *written == name);
        written.map_or_else(Span::call_site, Ident::span)
    }

    /// Whether these arguments have no mistakes, so that they can be compared.
    pub(crate) fn are_right(&self, names: &[&str]) -> bool {
        !self.is_unclear && !names.iter().any(|name| self.faulty.iter().any(|one| one == name))
    }
}
