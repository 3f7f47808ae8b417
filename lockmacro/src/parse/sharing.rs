//! A lock that several callers hold at the same time: `shared` and `permits = 3`.

use syn::{Error, Expr, ExprUnary, Lit, Result, UnOp};

use crate::messages;
use crate::parse::path::literal;

/// The most permits of one key, the same as in the runtime.
const PERMITS_MAX: u64 = 10_000;

/// What allows other holders of a key.
pub(crate) enum Sharing {
    Shared,
    /// At most so many holders: a number or an expression of type `u32`.
    Permits(Box<Expr>),
}

impl Sharing {
    /// Reads a number of permits. One in a list of keys is exclusive.
    pub(crate) fn permits(value: Expr, least: u64) -> Result<Self> {
        let is_right = match literal(&value).map(|literal| &literal.lit) {
            Some(Lit::Int(number)) => {
                number.base10_parse::<u64>().is_ok_and(|it| (least..=PERMITS_MAX).contains(&it))
            }
            Some(_) => false,
            None => !matches!(value, Expr::Unary(ExprUnary { op: UnOp::Neg(_), .. })),
        };
        if is_right {
            Ok(Sharing::Permits(Box::new(value)))
        } else {
            Err(Error::new_spanned(value, messages::permits(PERMITS_MAX)))
        }
    }

    pub(crate) fn expr(&self) -> Option<&Expr> {
        match self {
            Sharing::Shared => None,
            Sharing::Permits(number) => Some(number),
        }
    }
}
