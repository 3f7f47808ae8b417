//! The attribute's arguments as data.

use proc_macro2::{Ident, Span};
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, LitStr, Path, Result, Token, bracketed, token};

use crate::duration::{self, Time, Wait};
use crate::key::Key;
use crate::policy::{self, OnBusy, OnLost};
use crate::template::Template;

/// What can be written, each with an example.
const KNOWN: [(&str, &str); 14] = [
    ("key", "key = \"order:<id>\""),
    ("ttl", "ttl = \"300s\""),
    ("renew", "renew"),
    ("max_hold", "max_hold = \"10m\""),
    ("min_hold", "min_hold = \"5s\""),
    ("wait", "wait = \"5s\""),
    ("on_busy", "on_busy = skip"),
    ("on_lost", "on_lost = error"),
    ("guard", "guard = lock"),
    ("fence", "fence = fence"),
    ("message", "message = \"order <id> is being audited\""),
    ("holder_note", "holder_note = \"<user.name>\""),
    ("manager", "manager = self.locks"),
    ("crate", "crate = my_crate::lockmacro_runtime"),
];

pub(crate) struct Args {
    pub(crate) key: Key,
    /// Without it the lease is the runtime's, which is renewed.
    pub(crate) ttl: Option<Time>,
    pub(crate) renew: bool,
    pub(crate) max_hold: Option<Time>,
    pub(crate) min_hold: Option<Time>,
    /// Without it the lock is asked for once.
    pub(crate) wait: Option<Wait>,
    pub(crate) on_busy: OnBusy,
    pub(crate) on_lost: Option<OnLost>,
    /// The body's name for the guard.
    pub(crate) guard: Option<Ident>,
    /// The body's names for the fences.
    pub(crate) fence: Option<Fences>,
    pub(crate) message: Option<Template>,
    pub(crate) holder_note: Option<Template>,
    pub(crate) manager: Option<Expr>,
    /// Where the runtime is, if it is not `::lockmacro_runtime`.
    pub(crate) runtime: Option<Path>,
    /// The names of the arguments that were written, for messages about them.
    names: Vec<Ident>,
}

/// What the body calls the fences.
pub(crate) enum Fences {
    /// `fence = name`: that of one key, or a `Vec` of those that `keys(..)` gives.
    Name(Ident),
    /// `fence = [debit, credit]`: a name for each of several keys.
    Each(Vec<Ident>),
}

impl Fences {
    pub(crate) fn names(&self) -> &[Ident] {
        match self {
            Fences::Name(name) => std::slice::from_ref(name),
            Fences::Each(names) => names,
        }
    }
}

impl Args {
    /// Every expression that is evaluated before the lock is taken.
    pub(crate) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let wait = self.wait.as_ref().and_then(Wait::limit);
        let times = [&self.ttl, &self.max_hold, &self.min_hold].into_iter().flatten().chain(wait);
        let keys = self.key.each();
        let templates = keys.iter().filter_map(|key| key.template());
        let templates = templates.chain(&self.message).chain(&self.holder_note);
        let values = templates.flat_map(Template::exprs);
        let values = values.chain(keys.iter().filter_map(|key| key.expr()));
        values.chain(times.filter_map(Time::expr)).chain(&self.manager)
    }

    /// Where an argument was written.
    pub(crate) fn span_of(&self, name: &str) -> Span {
        let written = self.names.iter().find(|written| *written == name);
        written.map_or_else(Span::call_site, Ident::span)
    }
}

impl Parse for Args {
    fn parse(input: ParseStream) -> Result<Self> {
        let mut names: Vec<Ident> = Vec::new();
        let (mut key, mut ttl, mut renew, mut max_hold, mut min_hold) =
            (None, None, false, None, None);
        let (mut wait, mut on_busy, mut on_lost) = (None, OnBusy::Error, None);
        let (mut guard, mut fence) = (None, None);
        let (mut message, mut holder_note, mut manager, mut runtime) = (None, None, None, None);
        while !input.is_empty() {
            let name = name(input, names.last())?;
            if names.contains(&name) {
                return Err(Error::new(
                    name.span(),
                    format!("`{name}` is given twice: remove one"),
                ));
            }
            match name.to_string().as_str() {
                "key" => key = Some(Key::parse(value(input, &name)?)?),
                "ttl" => ttl = Some(duration::ttl(value(input, &name)?)?),
                "renew" => renew = parse_bare(input, &name)?,
                "max_hold" => max_hold = Some(parse_time(input, &name)?),
                "min_hold" => min_hold = Some(parse_time(input, &name)?),
                "wait" => wait = Some(duration::wait(value(input, &name)?)?),
                "on_busy" => on_busy = policy::on_busy(value(input, &name)?)?,
                "on_lost" => on_lost = Some(policy::on_lost(value(input, &name)?)?),
                "guard" => guard = Some(parse_binding(input, &name)?),
                "fence" => fence = Some(parse_fences(input, &name)?),
                "message" => message = Some(parse_message(value(input, &name)?)?),
                "holder_note" => holder_note = Some(parse_note(value(input, &name)?)?),
                "manager" => manager = Some(parse_manager(value(input, &name)?)?),
                "crate" => runtime = Some(parse_runtime(input, &name)?),
                _ => return Err(Error::new(name.span(), refusal(&name))),
            }
            names.push(name);
            if !input.is_empty() && input.parse::<Token![,]>().is_err() {
                return Err(input.error("expected `,` before the next argument"));
            }
        }
        let key = key.ok_or_else(|| {
            let write = if names.is_empty() {
                "#[distributed_lock(key = \"order:<id>\", ttl = \"300s\")]"
            } else {
                "key = \"order:<id>\""
            };
            Error::new(Span::call_site(), format!("`key` is missing: write `{write}`"))
        })?;
        Ok(Self {
            key,
            ttl,
            renew,
            max_hold,
            min_hold,
            wait,
            on_busy,
            on_lost,
            guard,
            fence,
            message,
            holder_note,
            manager,
            runtime,
            names,
        })
    }
}

/// An argument's name, behind that of the argument before it.
fn name(input: ParseStream, before: Option<&Ident>) -> Result<Ident> {
    if let Ok(literal) = input.fork().parse::<LitStr>() {
        let message = if before.is_some_and(|before| before == "key") {
            format!("several keys stand in brackets: write `key = [\"..\", {:?}]`", literal.value())
        } else {
            format!("this string has no name: write `key = {:?}`", literal.value())
        };
        return Err(Error::new(literal.span(), message));
    }
    if !input.peek(syn::Ident::peek_any) {
        return Err(input.error("expected an argument such as `key = \"order:<id>\"`"));
    }
    Ident::parse_any(input)
}

/// `= expr`
fn value(input: ParseStream, name: &Ident) -> Result<Expr> {
    equals(input, name)?;
    let mut value = input.parse()?;
    // A value that came through a `macro_rules!` variable stands in an invisible group.
    while let Expr::Group(group) = value {
        value = *group.expr;
    }
    Ok(value)
}

/// `=` and something after it.
fn equals(input: ParseStream, name: &Ident) -> Result<()> {
    if input.parse::<Token![=]>().is_err() || input.is_empty() || input.peek(Token![,]) {
        let message = format!("`{name}` has no value: write `{}`", example(name));
        return Err(Error::new(name.span(), message));
    }
    Ok(())
}

fn example(name: &Ident) -> &'static str {
    let known = KNOWN.iter().find(|(known, _)| name == known);
    known.map_or("", |(_, example)| example)
}

fn parse_time(input: ParseStream, name: &Ident) -> Result<Time> {
    duration::time(&name.to_string(), value(input, name)?)
}

/// A word that stands alone.
fn parse_bare(input: ParseStream, name: &Ident) -> Result<bool> {
    if input.peek(Token![=]) {
        let message = format!("`{name}` takes no value: write `{name}` alone, or leave it out");
        return Err(Error::new(name.span(), message));
    }
    Ok(true)
}

/// `= name`
fn parse_binding(input: ParseStream, name: &Ident) -> Result<Ident> {
    equals(input, name)?;
    let start = input.span();
    match input.parse() {
        Ok(binding) if input.is_empty() || input.peek(Token![,]) => Ok(binding),
        _ => Err(Error::new(
            start,
            format!(
                "`{name}` gives a name to use in the body: write one, as in `{}`",
                example(name)
            ),
        )),
    }
}

/// `= name`, or `= [name, name]`
fn parse_fences(input: ParseStream, name: &Ident) -> Result<Fences> {
    let list = input.fork();
    if list.parse::<Token![=]>().is_err() || !list.peek(token::Bracket) {
        return parse_binding(input, name).map(Fences::Name);
    }
    equals(input, name)?;
    let start = input.span();
    let names;
    bracketed!(names in input);
    match Punctuated::<Ident, Token![,]>::parse_terminated(&names) {
        Ok(names) => Ok(Fences::Each(names.into_iter().collect())),
        Err(_) => Err(Error::new(
            start,
            "`fence` gives names to use in the body: write one for each key, as in \
             `fence = [debit, credit]`",
        )),
    }
}

fn parse_message(value: Expr) -> Result<Template> {
    match value {
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Template::parse(text),
        other => Err(Error::new_spanned(
            other,
            "a message is a string literal, with placeholders for values: write \
             `message = \"order <id> is being audited\"`",
        )),
    }
}

fn parse_note(value: Expr) -> Result<Template> {
    match value {
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Template::parse(text),
        other => Err(Error::new_spanned(
            other,
            "a note is a string literal, with placeholders for values: write \
             `holder_note = \"<user.name>\"`",
        )),
    }
}

fn parse_manager(value: Expr) -> Result<Expr> {
    match value {
        Expr::Lit(_) => Err(Error::new_spanned(
            value,
            "the manager is an expression giving `&LockManager`: write `manager = self.locks`",
        )),
        other => Ok(other),
    }
}

fn parse_runtime(input: ParseStream, name: &Ident) -> Result<Path> {
    equals(input, name)?;
    if let Ok(literal) = input.fork().parse::<LitStr>() {
        let message = format!("write the path without quotes: `crate = {}`", literal.value());
        return Err(Error::new(literal.span(), message));
    }
    input.call(Path::parse_mod_style)
}

/// Why an argument is refused, and what to write instead.
fn refusal(name: &Ident) -> String {
    let name = name.to_string();
    let known = KNOWN.iter().map(|(known, _)| *known);
    if let Some(near) = known.clone().find(|known| near(&name, known)) {
        return format!("unknown argument `{name}`: did you mean `{near}`?");
    }
    let known: Vec<_> = known.map(|known| format!("`{known}`")).collect();
    format!("unknown argument `{name}`: the known ones are {}", known.join(", "))
}

/// Whether one slip of the pen, or two in a longer word, makes one word of the other.
fn near(one: &str, other: &str) -> bool {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.bytes().enumerate() {
            let substitution = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = substitution.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()] <= other.len() / 3
}
