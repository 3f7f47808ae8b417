//! A lock that several callers hold at the same time: `shared` and `permits = 3`.

use syn::{Error, Expr, ExprCall, Lit, Result, UnOp};

use crate::path::is_path;

/// The most permits of one key, the same as in the runtime.
const PERMITS_MAX: u64 = 10_000;

/// What allows other holders of a key.
pub(crate) enum Sharing {
    Shared,
    /// At most so many holders: a number or an expression of type `u32`.
    Permits(Expr),
}

impl Sharing {
    /// The value of `permits`.
    pub(crate) fn permits(value: Expr) -> Result<Self> {
        let refused = |message: String| Err(Error::new_spanned(&value, message));
        let number = match &value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Int(number) => number.base10_parse::<u64>().unwrap_or(u64::MAX),
                Lit::Str(text) if text.value().trim().parse::<u64>().is_ok() => {
                    return refused(format!(
                        "a number has no quotes: write `permits = {}`",
                        text.value().trim()
                    ));
                }
                _ => {
                    return refused(format!(
                        "`permits` is how many may hold the lock at once: write a number from 2 to \
                         {PERMITS_MAX}, as in `permits = 3`, or an expression of type `u32`"
                    ));
                }
            },
            Expr::Unary(minus) if matches!(minus.op, UnOp::Neg(_)) => 0,
            _ => return Ok(Sharing::Permits(value)),
        };
        match number {
            0 => refused(format!(
                "this would let nobody in: write a number from 2 to {PERMITS_MAX}, as in \
                 `permits = 3`"
            )),
            1..=PERMITS_MAX => Ok(Sharing::Permits(value)),
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

    /// The refusal of `key = shared("a:<x>")`.
    pub(crate) fn of_only_key(call: &ExprCall) -> Error {
        let (word, write) = match Self::word(call) {
            Some("shared") => ("shared", "`key = \"rates:<day>\", shared`"),
            _ => ("permits", "`key = \"printer:<room>\", permits = 3`"),
        };
        let message = format!("`{word}(..)` is for one of several keys: write {write}");
        Error::new_spanned(call, message)
    }

    /// Whether this is one permit, as far as that is known: an exclusive lock.
    pub(crate) fn is_one(&self) -> bool {
        let number = self.expr().and_then(|number| match number {
            Expr::Lit(literal) => Some(&literal.lit),
            _ => None,
        });
        matches!(number, Some(Lit::Int(number)) if number.base10_digits() == "1")
    }

    pub(crate) fn expr(&self) -> Option<&Expr> {
        match self {
            Sharing::Shared => None,
            Sharing::Permits(number) => Some(number),
        }
    }
}
