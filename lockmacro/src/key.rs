//! The key of a lock, or its several keys.

use proc_macro2::{Ident, Span};
use syn::{Block, Error, Expr, ExprArray, ExprCall, Lit, LitStr, Result, Stmt};

use crate::item::bound;
use crate::path::{bare, is_path};
use crate::placeholder::roots_in;
use crate::sharing::Sharing;
use crate::template::Template;
use crate::text;
use crate::unfilled;

/// The most keys of one lock, the same as in the runtime.
const KEYS_MAX: usize = 128;

pub(crate) enum Key {
    Template(Template),
    /// An expression giving `impl Into<LockKey>`.
    Expr(Expr),
    /// `["account:<from>", "account:<to>"]`: each is one of the above.
    Several(Vec<Key>),
    /// `shared("rates")` or `permits("printer", 3)`, among several keys.
    Shared(Box<Key>, Sharing),
    /// `keys(expr)`: an expression giving an iterator of keys.
    Keys(Expr),
}

/// In place of a key that is missing or wrong.
impl Default for Key {
    fn default() -> Self {
        let literal = LitStr::new("", Span::call_site());
        Key::Template(Template { literal, parts: Vec::new() })
    }
}

impl Key {
    pub(crate) fn parse(value: Expr) -> Result<Self> {
        if let Some(error) = Sharing::refusal(&value, "key = ") {
            return Err(error);
        }
        match value {
            Expr::Array(keys) => Self::several(keys),
            Expr::Call(call) if is_path(&call.func, "keys") => Self::keys(call),
            other if is_list(&other) => Err(Error::new_spanned(
                other,
                "several keys are a list in brackets: write \
                 `key = [\"account:<from>\", \"account:<to>\"]`, or `key = keys(..)` around an \
                 iterator of keys",
            )),
            other => Self::one(other, "key = "),
        }
    }

    /// Parses one key. In messages `before` stands in front of it.
    pub(crate) fn one(value: Expr, before: &str) -> Result<Self> {
        if let Some(literal) = text::literal(&value) {
            return match &literal.lit {
                Lit::Str(text) => {
                    let template = Template::parse(text.clone())?;
                    template.check_key()?;
                    Ok(Key::Template(template))
                }
                other => Err(Error::new_spanned(
                    other,
                    "a key is text: write `key = \"order:<id>\"`, or an expression giving `impl \
                     Into<LockKey>`",
                )),
            };
        }
        if let Some(text) = text::of(&value)
            && !roots_in(&text).is_empty()
        {
            return Err(Error::new_spanned(value, text::refusal(&text, before)));
        }
        // Text in a branch is not filled in, and has the mistakes of other text.
        branches(&value)
            .into_iter()
            .try_for_each(|end| Self::one(end.clone(), before).map(drop))?;
        Ok(Key::Expr(value))
    }

    fn several(list: ExprArray) -> Result<Self> {
        if list.elems.is_empty() {
            return Err(Error::new_spanned(
                list,
                "this list has no keys: write them in it, as in \
                 `key = [\"account:<from>\", \"account:<to>\"]`",
            ));
        }
        if list.elems.len() > KEYS_MAX {
            let count = list.elems.len();
            let message = format!("a lock has at most {KEYS_MAX} keys, and these are {count}");
            return Err(Error::new_spanned(list, message));
        }
        let mut keys: Vec<Self> = Vec::new();
        for value in list.elems {
            if is_list(&value) || matches!(&value, Expr::Call(call) if is_path(&call.func, "keys"))
            {
                return Err(Error::new_spanned(
                    value,
                    "each of several keys is text or an expression giving `impl Into<LockKey>`: \
                     write all keys in one list, or `key = keys(..)` alone",
                ));
            }
            if let Some(error) = Sharing::refusal(&value, "") {
                return Err(error);
            }
            let place = value.clone();
            let key = match value {
                Expr::Call(call) if Sharing::word(&call).is_some() => Self::shared(call)?,
                value => Self::one(value, "")?,
            };
            let text = |key: &Self| key.template().map(|template| template.literal.value());
            if text(&key).is_some_and(|new| keys.iter().any(|key| text(key).as_ref() == Some(&new)))
            {
                return Err(Error::new_spanned(place, "this key is there twice: remove one"));
            }
            keys.push(key);
        }
        Ok(Key::Several(keys))
    }

    /// `shared("a:<x>")` and `permits("b:<y>", 3)` in a list of keys.
    fn shared(call: ExprCall) -> Result<Self> {
        let (word, place) = (Sharing::word(&call), call.clone());
        let mut arguments = call.args.into_iter();
        let (key, number, more) = (arguments.next(), arguments.next(), arguments.next());
        let (key, sharing) = match (word, key, number, more) {
            (Some("shared"), Some(key), None, None) => (key, Sharing::Shared),
            (Some("permits"), Some(key), Some(number), None) => (key, Sharing::permits(number)?),
            (Some("shared"), ..) => {
                let message = "`shared` takes one key: write `shared(\"rates:<day>\")`";
                return Err(Error::new_spanned(place, message));
            }
            _ => {
                let message = "`permits` takes one key and a number: write \
                               `permits(\"printer:<room>\", 3)`";
                return Err(Error::new_spanned(place, message));
            }
        };
        Ok(Key::Shared(Box::new(Self::one(key, "")?), sharing))
    }

    fn keys(call: ExprCall) -> Result<Self> {
        let message = match call.args.first() {
            Some(keys @ Expr::Array(_)) => {
                let message = "a list of keys stands alone, and its placeholders are filled in \
                               then: write `key = [\"account:<from>\", \"account:<to>\"]`";
                return Err(Error::new_spanned(keys, message));
            }
            Some(Expr::Lit(_)) => {
                "this is no iterator of keys: write one key alone, `key = \"order:<id>\"`"
            }
            Some(keys) if call.args.len() == 1 => return Ok(Key::Keys(keys.clone())),
            _ => {
                "`keys` takes one iterator of keys: write `key = keys(..)` around it, or the keys \
                 in a list, `key = [\"account:<from>\", \"account:<to>\"]`"
            }
        };
        Err(Error::new_spanned(call, message))
    }

    /// Whether this is a single key.
    pub(crate) fn is_one(&self) -> bool {
        !matches!(self, Key::Several(_) | Key::Keys(_))
    }

    /// The single keys, as far as they are known at compile time.
    pub(crate) fn each(&self) -> &[Self] {
        match self {
            Key::Several(keys) => keys,
            one => std::slice::from_ref(one),
        }
    }

    pub(crate) fn template(&self) -> Option<&Template> {
        match self {
            Key::Template(template) => Some(template),
            Key::Shared(key, _) => key.template(),
            _ => None,
        }
    }

    /// How this one of several keys is shared.
    pub(crate) fn sharing(&self) -> Option<&Sharing> {
        match self {
            Key::Shared(_, sharing) => Some(sharing),
            _ => None,
        }
    }

    pub(crate) fn expr(&self) -> Option<&Expr> {
        match self {
            Key::Expr(expr) | Key::Keys(expr) => Some(expr),
            Key::Shared(key, _) => key.expr(),
            Key::Template(_) | Key::Several(_) => None,
        }
    }

    /// Every template in it.
    pub(crate) fn templates_mut(&mut self) -> Vec<&mut Template> {
        match self {
            Key::Template(template) => vec![template],
            Key::Shared(key, _) => key.templates_mut(),
            Key::Several(keys) => keys.iter_mut().flat_map(Self::templates_mut).collect(),
            Key::Expr(_) | Key::Keys(_) => Vec::new(),
        }
    }

    /// Checks the placeholders, and refuses them where they are not filled in.
    pub(crate) fn check_names(&self, names: &[Ident]) -> Result<()> {
        match self {
            Key::Template(template) => template.check_names(names, true),
            Key::Shared(key, _) => key.check_names(names),
            Key::Several(keys) => keys.iter().try_for_each(|key| key.check_names(names)),
            Key::Expr(expr) | Key::Keys(expr) => check_filled(expr, names),
        }
    }

    /// Whether this is probably a constant: a path that is none of `names`.
    pub(crate) fn is_constant(&self, names: &[Ident]) -> bool {
        let Key::Expr(expr) = self else { return false };
        let Expr::Path(path) = bare(expr) else { return false };
        path.path.get_ident().is_none_or(|name| !names.contains(name))
    }
}

fn check_filled(expr: &Expr, names: &[Ident]) -> Result<()> {
    if let Some((span, text)) = unfilled::unfilled(expr, names) {
        return Err(Error::new(span, unfilled::refusal(&text)));
    }
    let inner = [names, &bound(expr)].concat();
    branches(expr).into_iter().try_for_each(|end| match text::literal(end).map(|end| &end.lit) {
        Some(Lit::Str(text)) => Template::parse(text.clone())?.check_names(&inner, true),
        _ => check_filled(end, names),
    })
}

/// The expressions that may be the value of an `if`, a `match` or a block.
fn branches(expr: &Expr) -> Vec<&Expr> {
    fn end(block: &Block) -> Vec<&Expr> {
        match block.stmts.last() {
            Some(Stmt::Expr(end, None)) => vec![end],
            _ => Vec::new(),
        }
    }
    match expr {
        Expr::Paren(paren) => vec![&*paren.expr],
        Expr::Block(block) => end(&block.block),
        Expr::Unsafe(block) => end(&block.block),
        Expr::If(choice) => {
            let otherwise = choice.else_branch.iter().map(|(_, otherwise)| &**otherwise);
            end(&choice.then_branch).into_iter().chain(otherwise).collect()
        }
        Expr::Match(choice) => choice.arms.iter().map(|arm| &*arm.body).collect(),
        _ => Vec::new(),
    }
}

/// Whether this is another notation for several values.
fn is_list(expr: &Expr) -> bool {
    match expr {
        Expr::Array(_) | Expr::Repeat(_) | Expr::Tuple(_) => true,
        Expr::Reference(reference) => is_list(&reference.expr),
        Expr::Macro(call) => call.mac.path.is_ident("vec"),
        _ => false,
    }
}
