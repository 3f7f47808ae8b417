//! The attribute's arguments as data.

use proc_macro2::{Ident, Span, TokenTree};
use quote::ToTokens as _;
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, ExprPath, Lit, LitStr, Path, Result, Token};

use crate::fix::names::{self, example};
use crate::parse::duration::{self, Time, Wait};
use crate::parse::faults::Faults;
use crate::parse::key::Key;
use crate::parse::path::ungroup;
use crate::parse::policy::{self, AfterLoss, OnBusy};
use crate::parse::sharing::Sharing;
use crate::parse::taking::{is_taking, taken_parts, taking_parts};
use crate::parse::template::Template;
use crate::parse::values::{
    Fences, equals, parse_bare, parse_binding, parse_fences, parse_manager, parse_map_err,
    parse_message, parse_name, parse_note, parse_runtime,
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
    pub(crate) wait: Option<Wait>,
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
    pub(crate) faults: Faults,
    /// The arguments with mistakes, or which may have some.
    faulty: Faulty,
}

/// The arguments that the checks of several arguments leave out.
#[derive(Default)]
struct Faulty {
    names: Vec<String>,
    /// All of them: a value that cannot be parsed may include the arguments after it.
    all: bool,
}

impl Args {
    /// Every expression that is evaluated before the lock is acquired.
    pub(crate) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let keys = self.key.each().iter().filter_map(Key::expr);
        self.placeholders().chain(keys).chain(self.borrowed())
    }

    /// The expressions that may move an argument before the body gets it.
    pub(crate) fn taking(&self) -> Vec<&Expr> {
        let calls = self.placeholders().filter(|expr| is_taking(expr));
        let keys = self.key.each().iter().filter_map(Key::expr).flat_map(taken_parts);
        calls.chain(keys).chain(self.borrowed().flat_map(taking_parts)).collect()
    }

    /// The values in the key and in the other texts.
    fn placeholders(&self) -> impl Iterator<Item = &Expr> {
        let templates = self.key.each().iter().filter_map(Key::template);
        let texts = templates.chain(&self.message).chain(&self.holder_note);
        texts.chain(self.on_busy.same()).flat_map(Template::exprs)
    }

    /// The times and the numbers, which are copied, and the manager, which is borrowed.
    fn borrowed(&self) -> impl Iterator<Item = &Expr> {
        let wait = self.wait.as_ref().and_then(Wait::limit);
        let times = [&self.ttl, &self.max_hold, &self.min_hold].into_iter().flatten().chain(wait);
        let keep = match &self.on_busy {
            OnBusy::Reuse(reuse) => reuse.keep.as_ref(),
            _ => None,
        };
        times.chain(keep).filter_map(Time::expr).chain(self.permits()).chain(&self.manager)
    }

    /// The numbers of permits.
    fn permits(&self) -> impl Iterator<Item = &Expr> {
        let of_keys = self.key.each().iter().filter_map(Key::sharing);
        of_keys.chain(&self.sharing).filter_map(Sharing::expr)
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

    /// Binds the placeholders to the function's arguments, see [`Template::bind`].
    pub(crate) fn bind(&mut self, names: &[Ident]) {
        let same = match &mut self.on_busy {
            OnBusy::Reuse(reuse) => reuse.same.as_mut(),
            _ => None,
        };
        let texts = [&mut self.message, &mut self.holder_note].into_iter().flatten().chain(same);
        self.key.templates_mut().into_iter().chain(texts).for_each(|template| {
            template.bind(names);
        });
    }

    /// Whether these arguments have no mistakes, so that they can be compared.
    pub(crate) fn are_right(&self, names: &[&str]) -> bool {
        !self.faulty.all
            && !names.iter().any(|name| self.faulty.names.iter().any(|one| one == name))
    }

    /// Keeps a mistake. `false`, as the argument is not read.
    fn fault<'a>(&mut self, about: impl IntoIterator<Item = &'a str>, error: Error) -> bool {
        self.faults.keep::<()>(Err(error));
        self.faulty.names.extend(about.into_iter().map(str::to_owned));
        false
    }

    /// Reads a value that stands alone, which is a mistake.
    fn read_alone(&mut self, input: ParseStream) -> Result<()> {
        let value: Lit = input.parse()?;
        let shown = value.to_token_stream();
        let names_key = |tree| matches!(tree, TokenTree::Ident(name) if name == "key");
        let needs_key = matches!(value, Lit::Str(_))
            && !self.has("key")
            && self.are_right(&["key"])
            && !input.cursor().token_stream().into_iter().any(names_key);
        let message = if input.peek(Token![=]) {
            "the name of an argument has no quotes: write `key = \"order:<id>\"`".to_owned()
        } else if needs_key {
            format!("each value has its name: write `key = {shown}`")
        } else {
            format!("each value has its name: write one before `{shown}`, as in `ttl = \"300s\"`")
        };
        // It may be the value of any argument.
        self.faulty.all = true;
        Err(Error::new(value.span(), message))
    }

    /// Parses one argument. `true` if it has no mistake.
    fn read(&mut self, input: ParseStream) -> bool {
        if input.peek(Lit) {
            return self.read_alone(input).is_err_and(|error| self.fault(None, error));
        }
        let name = match name(input) {
            Ok(name) => name,
            Err((about, error)) => return self.fault(about, error),
        };
        let text = name.to_string();
        let read = if self.names.contains(&name) {
            Err(Error::new(name.span(), format!("`{name}` is given twice: remove one")))
        } else {
            self.set(&name, input)
        };
        self.names.push(name);
        match read {
            Ok(()) => true,
            Err(error) => self.fault(Some(&*text), error),
        }
    }

    fn set(&mut self, name: &Ident, input: ParseStream) -> Result<()> {
        match name.to_string().as_str() {
            "key" => self.key = Key::parse(self.value(input, name)?)?,
            "shared" => self.sharing = parse_bare(input, name)?.then_some(Sharing::Shared),
            "permits" => self.sharing = Some(Sharing::permits(self.value(input, name)?)?),
            "ttl" => self.ttl = Some(duration::ttl(self.value(input, name)?)?),
            "renew" => self.renew = parse_bare(input, name)?,
            "max_hold" => self.max_hold = Some(self.time(input, name)?),
            "min_hold" => self.min_hold = Some(self.time(input, name)?),
            "wait" => self.wait = Some(duration::wait(self.value(input, name)?)?),
            "on_busy" => self.on_busy = policy::on_busy(self.value(input, name)?)?,
            "on_lost" => self.on_lost = Some(policy::on_lost(self.value(input, name)?)?),
            "release" => self.releases_in_background = policy::release(self.value(input, name)?)?,
            "guard" => self.guard = Some(parse_binding(input, name)?),
            "fence" => self.fence = Some(parse_fences(input, name)?),
            "message" => self.message = Some(parse_message(self.value(input, name)?)?),
            "holder_note" => self.holder_note = Some(parse_note(self.value(input, name)?)?),
            "manager" => self.manager = Some(parse_manager(self.value(input, name)?)?),
            "map_err" => self.map_err = Some(parse_map_err(self.value(input, name)?)?),
            "name" => self.name = Some(parse_name(self.value(input, name)?)?),
            "crate" => self.runtime = Some(parse_runtime(self.value(input, name)?)?),
            _ => return Err(unknown(&name.to_string(), name.span()).1),
        }
        Ok(())
    }

    /// `= expr`
    fn value(&mut self, input: ParseStream, name: &Ident) -> Result<Expr> {
        equals(input, name)?;
        // On a fork: tokens left over in brackets would be a second error.
        if let Err(error) = input.fork().parse::<Expr>() {
            // A comma may belong to the value.
            self.faulty.all = true;
            while input.parse::<TokenTree>().is_ok() {}
            return Err(error);
        }
        let mut value = input.parse()?;
        ungroup(&mut value);
        Ok(value)
    }

    fn time(&mut self, input: ParseStream, name: &Ident) -> Result<Time> {
        duration::time(&name.to_string(), self.value(input, name)?)
    }
}

impl Parse for Args {
    /// Continues after a mistake, so that all mistakes are reported: see [`Args::faults`].
    fn parse(input: ParseStream) -> Result<Self> {
        let mut args = Self::default();
        while !input.is_empty() {
            let is_read = args.read(input);
            if is_read && !input.is_empty() && !input.peek(Token![,]) {
                let error = input.error("expected `,` before the next argument");
                args.fault(None, error);
                if is_argument(input) {
                    continue;
                }
            }
            while !input.is_empty() && !input.peek(Token![,]) {
                input.parse::<TokenTree>()?;
            }
            input.parse::<Option<Token![,]>>()?;
        }
        if args.are_right(&["key"]) && !args.has("key") {
            let message = match &args.name {
                Some(name) => {
                    let name = name.value();
                    format!("`name` is for logs, and `key` is missing: write `key = {name:?}`")
                }
                None if args.names.is_empty() => {
                    "`key` is missing: write `#[distributed_lock(key = \"order:<id>\", ttl = \
                     \"300s\")]`"
                        .to_owned()
                }
                None => "`key` is missing: write `key = \"order:<id>\"`".to_owned(),
            };
            args.fault(Some("key"), Error::new(Span::call_site(), message));
        }
        Ok(args)
    }
}

/// Whether the input continues with another argument.
fn is_argument(input: ParseStream) -> bool {
    let ahead = input.fork();
    Ident::parse_any(&ahead).is_ok_and(|name| example(&name.to_string()).is_some())
}

/// Parses the name of an argument.
///
/// On an error: the argument that was probably meant, and the error.
fn name(input: ParseStream) -> std::result::Result<Ident, (Option<&'static str>, Error)> {
    if !input.peek(Ident::peek_any) {
        return Err((None, input.error("expected an argument such as `key = \"order:<id>\"`")));
    }
    let name = Ident::parse_any(input).map_err(|error| (None, error))?;
    let mut hyphened = name.to_string();
    while input.peek(Token![-]) && input.peek2(Ident::peek_any) {
        let rest = input.parse::<Token![-]>().and_then(|_| Ident::parse_any(input));
        hyphened = format!("{hyphened}-{}", rest.map_err(|error| (None, error))?);
    }
    // A word from another library counts as its argument, which is not reported as missing.
    match example(&hyphened) {
        Some(_) => Ok(name),
        None => Err(unknown(&hyphened, name.span())),
    }
}

fn unknown(name: &str, span: Span) -> (Option<&'static str>, Error) {
    let (meant, message) = names::refusal(name);
    (meant, Error::new(span, message))
}
