//! The lock that an expansion requests: its key, its lease and its manager.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Expr, ExprReference, Token};

use crate::parse::duration::{Time, WaitSetting};
use crate::parse::key::Key;
use crate::parse::policy::{AfterLoss, OnBusy};
use crate::parse::sharing::Sharing;
use crate::parse::spans::respan;
use crate::parse::template::{Part, Template, escaped};
use crate::print::expand::Printer;

/// The value of a method without one.
const NOTHING: Option<Expr> = None;

impl Printer<'_> {
    /// Output: `Lock::new(key).ttl(ttl).name("module::function").message(message).manager(manager)`
    pub(crate) fn lock(&self) -> TokenStream {
        let args = self.args;
        let lock = self.lock_on(&args.key);
        let lease = self.lease();
        let name = self.name();
        let message = args.message.as_ref().and_then(Template::as_plain);
        let message = message.map(|message| self.set("message", "message", message));
        let note = args.holder_note.as_ref().map(|note| match note.as_plain() {
            Some(text) => self.set("holder_note", "holder_note", text),
            // A macro, because the temporaries of `format_args!` would live until the body ends.
            None => {
                let note = self.formatted(&quote_spanned!(self.site=> ::std::format), note);
                self.set("holder_note", "holder_note", note)
            }
        });
        let manager = self.manager().map(|manager| self.set("manager", "manager", manager));
        quote_spanned!(self.site=> #lock #lease.name(#name) #message #note #manager)
    }

    /// A call of a method that the attribute's `argument` stands for, with its span.
    ///
    /// Output: `.method(value)`
    pub(crate) fn set(&self, method: &str, argument: &str, value: impl ToTokens) -> TokenStream {
        let method = Ident::new(method, self.there(argument));
        quote_spanned!(self.site=> .#method(#value))
    }

    pub(crate) fn manager(&self) -> Option<TokenStream> {
        let manager = self.args.manager.as_ref()?;
        let there = manager.span().resolved_at(self.site);
        if is_branching(manager) {
            return Some(quote_spanned!(there=> &__manager));
        }
        Some(reference(manager, there).to_token_stream())
    }

    /// A manager from branches gets a variable first: behind a `&` each branch would have to be a
    /// manager, and none could be a reference to one.
    ///
    /// Output: `let manager = if eu { &self.eu } else { &self.us };`
    pub(crate) fn manager_first(&self) -> Option<TokenStream> {
        let manager = self.args.manager.as_ref().filter(|manager| is_branching(manager))?;
        let there = manager.span().resolved_at(self.site);
        Some(quote_spanned!(there=> let __manager = #manager;))
    }

    /// Output: `Lock::new(key)`, `Lock::many([key, key])` or `Lock::many(keys)`
    fn lock_on(&self, key: &Key) -> TokenStream {
        let site = self.site;
        let runtime = &self.runtime;
        // An error about a value belongs to the value.
        let there = |expr: &Expr| expr.span().resolved_at(site);
        match key {
            Key::Several(keys) => {
                let keys = self.list(keys);
                quote_spanned!(site=> #runtime::Lock::many(#keys))
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

    /// Output: `[key, key]`
    fn list(&self, keys: &[Key]) -> TokenStream {
        let site = self.site;
        let runtime = &self.runtime;
        // A list has values of one type: all templates, or all plain texts.
        let is_plain = |key: &Key| match key {
            Key::Shared(..) => None,
            key => Some(key.template()?.as_plain().is_some()),
        };
        let kind = keys.first().and_then(is_plain);
        let alike = kind.is_some() && keys.iter().all(|key| is_plain(key) == kind);
        let keys = keys.iter().map(|key| {
            let there = key.expr().map_or(site, |expr| expr.span().resolved_at(site));
            let (key, sharing) = match key {
                Key::Shared(key, sharing) => (&**key, Some(self.sharing(sharing))),
                key => (key, None),
            };
            match self.key(key) {
                key if alike => key,
                key => {
                    // By the trait's whole path, for modules without a prelude. An error about a
                    // value belongs to the value.
                    let runtime = respan(runtime.to_token_stream(), there);
                    let from =
                        quote_spanned!(there=> <#runtime::LockKey as ::core::convert::From<_>>);
                    quote_spanned!(there=> #from::from(#key) #sharing)
                }
            }
        });
        quote_spanned!(site=> [#(#keys),*])
    }

    /// Warns at run time of a constant with placeholders, which are not filled in.
    ///
    /// Output: `LockKey::template(..)`, `constant_key(ORDER_KEY, &["id"])` or an expression
    fn key(&self, key: &Key) -> TokenStream {
        let names = self.function.template_names();
        match key {
            Key::Template(template) => self.template(template),
            Key::Expr(constant) if !names.is_empty() && key.is_constant(&names) => {
                let site = constant.span().resolved_at(self.site);
                let module = respan(self.runtime.private(site), site);
                let names = names.iter().map(|name| name.unraw().to_string());
                quote_spanned!(site=> #module::constant_key(#constant, &[#(#names),*]))
            }
            other => other.expr().to_token_stream(),
        }
    }

    /// Output: `.shared().ttl(ttl).renew().max_hold(max_hold).min_hold(min_hold).wait(wait)
    /// .on_lost(policy).fenced().release_in_background()`
    fn lease(&self) -> TokenStream {
        let site = self.site;
        let runtime = &self.runtime;
        let args = self.args;
        let sharing = args.sharing.as_ref().map(|sharing| self.sharing(sharing));
        let time =
            |name, time: &Option<Time>| Some(self.set(name, name, self.time(time.as_ref()?)));
        let ttl = time("ttl", &args.ttl);
        let max_hold = time("max_hold", &args.max_hold);
        let min_hold = time("min_hold", &args.min_hold);
        let renew = args.renew.then(|| self.set("renew", "renew", NOTHING));
        let wait = match &args.wait {
            Some(WaitSetting::For(limit)) => Some(self.set("wait", "wait", self.time(limit))),
            Some(WaitSetting::Forever) => Some(self.set("wait_forever", "wait", NOTHING)),
            Some(WaitSetting::Never) => Some(self.wait_never()),
            None => self.default_wait(),
        };
        let on_lost = match args.on_lost {
            // `recovering` handles a function, and the others are the defaults.
            None | Some(AfterLoss::Recover(_) | AfterLoss::Cancel) => None,
            Some(AfterLoss::Error) if !self.is_async => None,
            Some(AfterLoss::Error) => Some(quote_spanned!(site=> #runtime::OnLost::Error)),
            Some(AfterLoss::Finish) => Some(quote_spanned!(site=> #runtime::OnLost::Finish)),
        };
        let on_lost = on_lost.map(|on_lost| quote_spanned!(site=> .on_lost(#on_lost)));
        let fenced = args.fence.as_ref().map(|_| self.set("fenced", "fence", NOTHING));
        let release = args.releases_in_background;
        let release = release.then(|| self.set("release_in_background", "release", NOTHING));
        quote_spanned!(
            site=> #sharing #ttl #renew #max_hold #min_hold #wait #on_lost #fenced #release
        )
    }

    /// Output: `.shared()` or `.permits(3)`
    fn sharing(&self, sharing: &Sharing) -> TokenStream {
        match sharing {
            Sharing::Shared => self.set("shared", "shared", NOTHING),
            Sharing::Permits(number) => {
                let there = number.span().resolved_at(self.site);
                let permits = Ident::new("permits", there);
                let number = number.to_token_stream();
                quote_spanned!(self.site=> .#permits(#number))
            }
        }
    }

    /// The wait of a lock without one, where it is not that of the manager. A `run` that skips does
    /// not wait by default.
    pub(crate) fn default_wait(&self) -> Option<TokenStream> {
        let is_none = matches!(self.args.on_busy, OnBusy::Skip) && !self.is_one_call();
        is_none.then(|| self.wait_never())
    }

    /// Output: `.wait(Duration::ZERO)`
    fn wait_never(&self) -> TokenStream {
        quote_spanned!(self.site=> .wait(::core::time::Duration::ZERO))
    }

    /// Output: `Duration::from_secs(300)`
    pub(crate) fn time(&self, time: &Time) -> TokenStream {
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
    pub(crate) fn template(&self, template: &Template) -> TokenStream {
        let site = self.site;
        let runtime = &self.runtime;
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

    /// Output: `format_args!("order {} is being audited", id)`
    pub(crate) fn message(&self, template: &Template) -> TokenStream {
        self.formatted(&quote_spanned!(self.site=> ::core::format_args), template)
    }

    /// Output: `name!("order {} is being audited", id)`
    fn formatted(&self, name: &TokenStream, template: &Template) -> TokenStream {
        let mut format = String::new();
        for part in &template.parts {
            match part {
                Part::Literal(text) => format.push_str(&escaped(text)),
                Part::Value(_) => format.push_str("{}"),
            }
        }
        let values = template.exprs();
        let site = template.literal.span().resolved_at(self.site);
        quote_spanned!(site=> #name!(#format, #(#values),*))
    }
}

/// `&expr`, without a second `&` where the user has written one.
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

/// Whether each branch of an expression may give a reference.
fn is_branching(expr: &Expr) -> bool {
    match expr {
        Expr::Paren(paren) => is_branching(&paren.expr),
        Expr::If(_) | Expr::Match(_) | Expr::Block(_) | Expr::Unsafe(_) | Expr::Try(_) => true,
        _ => false,
    }
}
