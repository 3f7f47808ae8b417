//! The lock that an expansion requests: its key, its lease and its manager.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens as _, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Expr, ExprReference, Token};

use crate::duration::{Time, Wait};
use crate::expand::Printer;
use crate::key::Key;
use crate::policy::{OnBusy, OnLost};
use crate::runtime::Runtime;
use crate::sharing::Sharing;
use crate::spans::respan;
use crate::template::{Part, Template};

impl Printer<'_> {
    /// Output: `Lock::new(key).ttl(ttl).name("module::function").message(message).manager(manager)`
    pub(crate) fn lock(&self) -> TokenStream {
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
        let (site, runtime) = (self.site, &self.runtime);
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

    /// Output: `[key, key]`
    fn list(&self, keys: &[Key]) -> TokenStream {
        let (site, runtime) = (self.site, &self.runtime);
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
                    let key = key_from(runtime, &key, there);
                    quote_spanned!(there=> #key #sharing)
                }
            }
        });
        quote_spanned!(site=> [#(#keys),*])
    }

    fn key(&self, key: &Key) -> TokenStream {
        match key {
            Key::Template(template) => self.template(template),
            Key::Expr(expr) if key.is_constant(&self.function.template_names()) => {
                self.constant(expr)
            }
            other => other.expr().to_token_stream(),
        }
    }

    /// Warns at run time of a constant with placeholders, which are not filled in.
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

    /// Output: `.policy(ORDERS).shared().ttl(ttl).renew().max_hold(max_hold).min_hold(min_hold)
    /// .wait(wait).on_lost(policy).release_in_background()`
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
            // The policy's, or the default that stands before it.
            (None, _) if args.policy.is_some() => None,
            (None, _) => self.default_wait(),
        };
        let on_lost = match args.on_lost {
            None => None,
            Some(OnLost::Cancel) if args.policy.is_some() => {
                Some(quote_spanned!(site=> .on_lost(#runtime::OnLost::Cancel)))
            }
            // The default.
            Some(OnLost::Cancel) => None,
            Some(OnLost::Error) if !self.is_async && args.policy.is_none() => None,
            Some(OnLost::Error) => Some(quote_spanned!(site=> .on_lost(#runtime::OnLost::Error))),
            Some(OnLost::Finish) => Some(quote_spanned!(site=> .on_lost(#runtime::OnLost::Finish))),
            // `recovering` handles it.
            Some(OnLost::Recover(_)) => None,
        };
        let release = args.releases_in_background.then(|| {
            let release = word("release_in_background", "release");
            quote_spanned!(site=> .#release())
        });
        let policy = self.policy();
        let sharing = args.sharing.as_ref().map(|sharing| self.sharing(sharing));
        let times = quote_spanned!(site=> #ttl #renew #max_hold #min_hold #wait);
        quote_spanned!(site=> #policy #sharing #times #on_lost #release)
    }

    /// Output: `.shared()` or `.permits(3)`
    fn sharing(&self, sharing: &Sharing) -> TokenStream {
        match sharing {
            Sharing::Shared => {
                let shared = Ident::new("shared", self.there("shared"));
                quote_spanned!(self.site=> .#shared())
            }
            Sharing::Permits(number) => {
                let there = number.span().resolved_at(self.site);
                let (permits, number) = (Ident::new("permits", there), number.to_token_stream());
                quote_spanned!(self.site=> .#permits(#number))
            }
        }
    }

    /// The wait of a lock without one, where it is not that of the manager. `run_or_skip` does not
    /// wait by default.
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
            // A macro, because the temporaries of `format_args!` would live until the body ends.
            None => self.formatted(&quote_spanned!(self.site=> ::std::format), template),
        }
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
                Part::Literal(text) => format.push_str(&text.replace('{', "{{").replace('}', "}}")),
                Part::Value(_) => format.push_str("{}"),
            }
        }
        let values = template.exprs();
        let site = template.literal.span().resolved_at(self.site);
        quote_spanned!(site=> #name!(#format, #(#values),*))
    }
}

/// By the trait's whole path, for modules without a prelude.
///
/// Output: `<LockKey as From<_>>::from(key)`
fn key_from(runtime: &Runtime, key: &TokenStream, site: Span) -> TokenStream {
    // An error about a value belongs to the value.
    let runtime = respan(runtime.to_token_stream(), site);
    quote_spanned!(site=> <#runtime::LockKey as ::core::convert::From<_>>::from(#key))
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
