//! A lock that several callers hold at the same time: `shared` and `permits = 3`.

use quote::quote;
use syn::{Error, Expr, ExprCall, Lit, Result, UnOp};

use crate::parse::path::{is_path, literal};

/// The most permits of one key, the same as in the runtime.
const PERMITS_MAX: u64 = 10_000;

/// What allows other holders of a key.
pub(crate) enum Sharing {
    Shared,
    /// At most so many holders: a number or an expression of type `u32`.
    Permits(Box<Expr>),
}

impl Sharing {
    /// The value of `permits`.
    pub(crate) fn permits(value: Expr) -> Result<Self> {
        let refused = |message: String| Err(Error::new_spanned(&value, message));
        let number = match (literal(&value).map(|literal| &literal.lit), &value) {
            (Some(Lit::Int(number)), _) => number.base10_parse::<u64>().unwrap_or(u64::MAX),
            (Some(Lit::Str(text)), _) if text.value().trim().parse::<u64>().is_ok() => {
                let text = text.value();
                return refused(format!(
                    "a number has no quotes: write `permits = {}`",
                    text.trim()
                ));
            }
            (Some(_), _) => {
                return refused(format!(
                    "`permits` is how many may hold the lock at once: write a number from 2 to \
                     {PERMITS_MAX}, as in `permits = 3`, or an expression of type `u32`"
                ));
            }
            (None, Expr::Unary(minus)) if matches!(minus.op, UnOp::Neg(_)) => 0,
            (None, _) => return Ok(Sharing::Permits(Box::new(value))),
        };
        match number {
            0 => refused(format!(
                "this would let nobody in: write a number from 2 to {PERMITS_MAX}, as in \
                 `permits = 3`"
            )),
            1..=PERMITS_MAX => Ok(Sharing::Permits(Box::new(value))),
            _ => refused(format!(
                "a lock has at most {PERMITS_MAX} permits: write fewer, or `shared` for holders \
                 without a limit"
            )),
        }
    }

    /// The name of `shared("a:<x>")` or `permits("b:<y>", 3)`, which stand in a list of keys.
    pub(crate) fn word(call: &ExprCall) -> Option<&'static str> {
        ["shared", "permits"].into_iter().find(|word| is_path(&call.func, word))
    }

    /// The refusal of `key = shared("a:<x>")`, which is for one of several keys.
    pub(crate) fn refusal(call: ExprCall) -> Error {
        let word = Self::word(&call).unwrap_or_default();
        let key = call.args.first().filter(|key| literal(key).is_some());
        let key = key.map_or("\"order:<id>\"".to_owned(), |key| quote!(#key).to_string());
        let number = call.args.get(1).map_or("3".to_owned(), |number| quote!(#number).to_string());
        let sharing = if word == "shared" { word } else { &format!("permits = {number}") };
        let message =
            format!("`{word}(..)` is for one of several keys: write `key = {key}, {sharing}`");
        Error::new_spanned(call, message)
    }

    /// Whether this is one permit, as far as that is known: an exclusive lock.
    pub(crate) fn is_one(&self) -> bool {
        let number = self.expr().and_then(literal).map(|literal| &literal.lit);
        matches!(number, Some(Lit::Int(number)) if number.base10_digits() == "1")
    }

    pub(crate) fn expr(&self) -> Option<&Expr> {
        match self {
            Sharing::Shared => None,
            Sharing::Permits(number) => Some(number),
        }
    }
}
