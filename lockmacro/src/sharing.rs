//! Who may hold the lock at the same time: `shared` and `permits = 3`.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens as _, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Error, Expr, ExprCall, Lit, Result, UnOp};

use crate::args::Args;
use crate::expand::Printer;
use crate::key::Key;

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
            1 => refused(
                "one permit is an exclusive lock, which is the default: remove `permits`"
                    .to_owned(),
            ),
            2..=PERMITS_MAX => Ok(Sharing::Permits(value)),
            _ => refused(format!(
                "a lock has at most {PERMITS_MAX} permits: write fewer, or `shared` for holders \
                 without a limit"
            )),
        }
    }

    /// `shared("a:<x>")` and `permits("b:<y>", 3)` in a list of keys.
    pub(crate) fn of_key(name: &str, call: ExprCall) -> Result<Key> {
        let place = call.clone();
        let mut arguments = call.args.into_iter();
        let (key, number, more) = (arguments.next(), arguments.next(), arguments.next());
        let (key, sharing) = match (name, key, number, more) {
            ("shared", Some(key), None, None) => (key, Sharing::Shared),
            ("permits", Some(key), Some(number), None) => (key, Self::permits(number)?),
            ("shared", ..) => {
                let message = "`shared` takes one key: write `shared(\"rates:<day>\")`";
                return Err(Error::new_spanned(place, message));
            }
            _ => {
                let message = "`permits` takes one key and a number: write \
                               `permits(\"printer:<room>\", 3)`";
                return Err(Error::new_spanned(place, message));
            }
        };
        Ok(Key::Shared(Box::new(Key::one(key, "")?), sharing))
    }

    /// The refusal of `key = shared("a:<x>")`.
    pub(crate) fn of_only_key(name: &str, call: &ExprCall) -> Error {
        let write = match name {
            "shared" => "`key = \"rates:<day>\", shared`",
            _ => "`key = \"printer:<room>\", permits = 3`",
        };
        let message = format!("`{name}(..)` is for one of several keys: write {write}");
        Error::new_spanned(call, message)
    }

    pub(crate) fn expr(&self) -> Option<&Expr> {
        match self {
            Sharing::Shared => None,
            Sharing::Permits(number) => Some(number),
        }
    }
}

/// Checks that only one argument says who may hold a key.
pub(crate) fn check(args: &Args) -> Result<()> {
    let Some(name) = args.sharing.as_ref().map(|sharing| match sharing {
        Sharing::Shared => "shared",
        Sharing::Permits(_) => "permits",
    }) else {
        return Ok(());
    };
    if args.has("shared") && args.has("permits") {
        let message = "`shared` lets any number of callers in, and `permits` at most so many: \
                       remove one of them";
        return Err(Error::new(args.span_of("permits"), message));
    }
    if args.key.each().iter().any(|key| matches!(key, Key::Shared(..))) {
        let message = format!(
            "`{name}` is for all keys, and one of them says for itself who may hold it: remove \
             `{name}` here, or the `shared(..)` and `permits(..)` in the list"
        );
        return Err(Error::new(args.span_of(name), message));
    }
    Ok(())
}

impl Printer<'_> {
    /// Output: `.shared()` or `.permits(3)`
    pub(crate) fn sharing(&self, sharing: &Sharing) -> TokenStream {
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
}
