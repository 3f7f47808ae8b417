//! The key of a lock, or its several keys.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::{Block, Error, Expr, ExprArray, ExprCall, Lit, LitStr, Result, Stmt};

use crate::parse::item::bound;
use crate::parse::path::{bare, is_path, literal};
use crate::parse::placeholder::roots_in;
use crate::parse::sharing::Sharing;
use crate::parse::template::Template;

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
        match value {
            Expr::Call(call) if Sharing::word(&call).is_some() => Err(Sharing::refusal(call)),
            Expr::Array(keys) => Self::several(keys),
            Expr::Call(call) if is_path(&call.func, "keys") => Self::keys(call),
            other if is_list(&other) => Err(Error::new_spanned(
                other,
                "several keys are a list in brackets: write \
                 `key = [\"account:<from>\", \"account:<to>\"]`, or `key = keys(..)` around an \
                 iterator of keys",
            )),
            other => Self::one(other),
        }
    }

    /// Parses one key.
    pub(crate) fn one(value: Expr) -> Result<Self> {
        if let Some(literal) = literal(&value) {
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
        check_text(value.to_token_stream())?;
        // Text in a branch is not filled in, and has the mistakes of other text.
        branches(&value).into_iter().try_for_each(|end| Self::one(end.clone()).map(drop))?;
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
            let place = value.clone();
            let key = match value {
                Expr::Call(call) if Sharing::word(&call).is_some() => Self::shared(call)?,
                value => Self::one(value)?,
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
        let word = Sharing::word(&call);
        let place = call.clone();
        let mut arguments = call.args.into_iter();
        let key = arguments.next();
        let number = arguments.next();
        let more = arguments.next();
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
        Ok(Key::Shared(Box::new(Self::one(key)?), sharing))
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
            Some(keys) if call.args.len() == 1 => {
                check_text(keys.to_token_stream())?;
                return Ok(Key::Keys(keys.clone()));
            }
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
            Key::Expr(expr) | Key::Keys(expr) => check_branches(expr, names),
        }
    }

    /// Whether this is probably a constant: a path that is none of `names`.
    pub(crate) fn is_constant(&self, names: &[Ident]) -> bool {
        let Key::Expr(expr) = self else { return false };
        let Expr::Path(path) = bare(expr) else { return false };
        path.path.get_ident().is_none_or(|name| !names.contains(name))
    }
}

/// Checks the texts in branches, which have no placeholders, against the names in other notations.
fn check_branches(expr: &Expr, names: &[Ident]) -> Result<()> {
    let inner = [names, &bound(expr)].concat();
    branches(expr).into_iter().try_for_each(|end| match literal(end).map(|end| &end.lit) {
        Some(Lit::Str(text)) => Template::parse(text.clone())?.check_names(&inner, true),
        _ => check_branches(end, &inner),
    })
}

/// Refuses `<id>` in a text that is a part of an expression, where nothing fills it in: every call
/// would have the same key.
fn check_text(tokens: TokenStream) -> Result<()> {
    check_texts(tokens, false)
}

/// `are_meant`: these texts are the template of a `LockKey`, or what a `replace` looks for.
fn check_texts(tokens: TokenStream, are_meant: bool) -> Result<()> {
    let trees = flat(tokens);
    for (at, tree) in trees.iter().enumerate() {
        match tree {
            TokenTree::Group(group) => {
                let called = called(&trees[..at]);
                if called.as_ref().is_some_and(|(how, name)| *how == '!' && name == "concat") {
                    let first = flat(group.stream()).first().map(TokenTree::span);
                    check_pieces(&joined(group.stream()), first.unwrap_or_else(|| group.span()))?;
                }
                let are_meant = group.delimiter() == Delimiter::Parenthesis
                    && called.is_some_and(|(how, name)| how != '!' && MEANT.contains(&&*name));
                check_texts(group.stream(), are_meant)?;
            }
            TokenTree::Literal(literal) if !are_meant => {
                if let Ok(text) = syn::parse2::<LitStr>(literal.to_token_stream()) {
                    check_pieces(&text.value(), text.span())?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The methods and functions whose texts have placeholders that are meant as they are.
const MEANT: [&str; 3] = ["template", "replace", "replacen"];

/// What is called with the group behind these: `!` for a macro, else `.` or `:`, and the name.
fn called(before: &[TokenTree]) -> Option<(char, String)> {
    match before {
        [.., TokenTree::Ident(name), TokenTree::Punct(bang)] if bang.as_char() == '!' => {
            Some(('!', name.to_string()))
        }
        [.., TokenTree::Punct(path), TokenTree::Ident(name)] if ".:".contains(path.as_char()) => {
            Some((path.as_char(), name.to_string()))
        }
        _ => None,
    }
}

/// The text of a `concat!` with these arguments. What is known to the compiler alone is `{}` in it.
fn joined(arguments: TokenStream) -> String {
    let trees = flat(arguments);
    let mut text = String::new();
    for (at, tree) in trees.iter().enumerate() {
        match tree {
            TokenTree::Literal(literal) => {
                let string = syn::parse2::<LitStr>(literal.to_token_stream());
                text.push_str(&string.map_or_else(|_| literal.to_string(), |text| text.value()));
            }
            TokenTree::Group(group) => match called(&trees[..at]) {
                Some(('!', name)) if name == "concat" => text.push_str(&joined(group.stream())),
                Some(('!', name)) if name == "stringify" => {
                    text.push_str(&group.stream().to_string());
                }
                _ => text.push_str("{}"),
            },
            _ => {}
        }
    }
    text
}

/// The tokens, with those that a `macro_rules!` was given in place.
fn flat(tokens: TokenStream) -> Vec<TokenTree> {
    let mut trees = Vec::new();
    for tree in tokens {
        match tree {
            TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
                trees.extend(flat(group.stream()));
            }
            tree => trees.push(tree),
        }
    }
    trees
}

fn check_pieces(text: &str, place: Span) -> Result<()> {
    if roots_in(text).is_empty() {
        return Ok(());
    }
    let formatted = match Template::parse(LitStr::new(text, place)) {
        // Braces may be those of a `format!` already.
        Ok(template) if !text.contains('{') => template.formatted(),
        _ => "format!(\"order:{id}\")".to_owned(),
    };
    let message = format!(
        "{text:?} is text in an expression, where placeholders are not filled in: write the whole \
         key as one string, as in `key = \"order:<id>\"`, or format the values in, as in \
         `{formatted}`; text that is meant as it is goes into a constant"
    );
    Err(Error::new(place, message))
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
