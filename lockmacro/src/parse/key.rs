//! The key of a lock, or its several keys.

use proc_macro2::{Ident, Span};
use quote::ToTokens as _;
use syn::{Block, Error, Expr, ExprArray, ExprCall, Lit, LitStr, Result, Stmt};

use crate::fix::texts;
use crate::messages;
use crate::messages::names::example;
use crate::parse::item::{Function, bound};
use crate::parse::path::{bare, is_path, literal};
use crate::parse::sharing::Sharing;
use crate::parse::template::Template;

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
    pub(crate) fn parse(value: Expr, function: Option<&Function>) -> Result<Self> {
        match value {
            Expr::Array(keys) => Self::several(keys, function),
            Expr::Call(call) if is_path(&call.func, "keys") => match call.args.first() {
                Some(keys)
                    if call.args.len() == 1 && !matches!(keys, Expr::Array(_) | Expr::Lit(_)) =>
                {
                    texts::check(keys.to_token_stream(), false)?;
                    Ok(Key::Keys(keys.clone()))
                }
                _ => Err(Error::new_spanned(call, messages::KEYS)),
            },
            Expr::Call(call) if is_sharing(&call) => {
                let word = call.func.to_token_stream().to_string();
                let example = example(&word).unwrap_or_default();
                Err(Error::new_spanned(call, messages::one_of_several(word, example)))
            }
            other if is_list(&other) => Err(Error::new_spanned(other, messages::KEYS)),
            other => Self::one(other, function),
        }
    }

    /// Parses one key.
    fn one(value: Expr, function: Option<&Function>) -> Result<Self> {
        if let Some(literal) = literal(&value) {
            return match &literal.lit {
                Lit::Str(text) => Template::key(text.clone(), function, &[]).map(Key::Template),
                other => Err(Error::new_spanned(other, messages::KEY_IS_TEXT)),
            };
        }
        if let Expr::Path(path) = bare(&value)
            && let Some(name) = path.path.get_ident()
            && function.is_some_and(|function| function.is_number(name))
        {
            return Err(Error::new_spanned(&value, messages::key_is_number(name)));
        }
        texts::check(value.to_token_stream(), false)?;
        // Nothing fills in the text of a branch, which has the mistakes of other text.
        check_branches(&value, &bound(&value), function)?;
        Ok(Key::Expr(value))
    }

    fn several(list: ExprArray, function: Option<&Function>) -> Result<Self> {
        if list.elems.is_empty() {
            return Err(Error::new_spanned(list, messages::KEYS));
        }
        let mut keys: Vec<Self> = Vec::new();
        for value in list.elems {
            let place = value.clone();
            let key = match value {
                Expr::Call(call) if is_path(&call.func, "keys") => {
                    return Err(Error::new_spanned(call, messages::KEYS));
                }
                list if is_list(&list) => return Err(Error::new_spanned(list, messages::KEYS)),
                Expr::Call(call) if is_sharing(&call) => {
                    let mut given = call.args.iter();
                    let sharing = match (given.next(), given.next(), given.next()) {
                        (Some(_), None, None) if is_path(&call.func, "shared") => Sharing::Shared,
                        (Some(_), Some(number), None) if is_path(&call.func, "permits") => {
                            Sharing::permits(number.clone(), 1)?
                        }
                        _ => return Err(Error::new_spanned(call, messages::SHARING)),
                    };
                    Key::Shared(Box::new(Self::one(call.args[0].clone(), function)?), sharing)
                }
                value => Self::one(value, function)?,
            };
            // Most often one of them should have named another argument.
            let text = |key: &Self| key.template().map(|template| template.literal.value());
            if text(&key).is_some_and(|new| keys.iter().any(|key| text(key).as_ref() == Some(&new)))
            {
                return Err(Error::new_spanned(place, messages::KEY_TWICE));
            }
            keys.push(key);
        }
        Ok(Key::Several(keys))
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

    /// Whether this is probably a constant: a path that is none of `names`.
    pub(crate) fn is_constant(&self, names: &[Ident]) -> bool {
        let Key::Expr(expr) = self else { return false };
        let Expr::Path(path) = bare(expr) else { return false };
        path.path.get_ident().is_none_or(|name| !names.contains(name))
    }
}

/// Checks the texts of an expression that are the whole key.
fn check_branches(expr: &Expr, bound: &[Ident], function: Option<&Function>) -> Result<()> {
    branches(expr).into_iter().try_for_each(|end| match literal(end).map(|end| &end.lit) {
        Some(Lit::Str(text)) => Template::key(text.clone(), function, bound).map(drop),
        _ => check_branches(end, bound, function),
    })
}

/// The expressions that may be the value of an `if`, a `match` or a block, or of which a method
/// without arguments such as `to_string` makes the value.
fn branches(expr: &Expr) -> Vec<&Expr> {
    fn end(block: &Block) -> Vec<&Expr> {
        match block.stmts.last() {
            Some(Stmt::Expr(end, None)) => vec![end],
            _ => Vec::new(),
        }
    }
    match bare(expr) {
        Expr::MethodCall(call) if call.args.is_empty() => vec![&*call.receiver],
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

/// Whether this is `shared("a:<x>")` or `permits("b:<y>", 3)`, which stand in a list of keys.
fn is_sharing(call: &ExprCall) -> bool {
    is_path(&call.func, "shared") || is_path(&call.func, "permits")
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
