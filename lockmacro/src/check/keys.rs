//! Keys, and who may hold them.

use syn::{Error, Result};

use crate::parse::args::Args;
use crate::parse::item::Function;
use crate::parse::key::Key;
use crate::parse::path::variable;
use crate::parse::sharing::Sharing;

pub(super) fn check_key(args: &Args, function: &Function) -> Result<()> {
    let before = if args.key.is_one() { "key = " } else { "" };
    for key in args.key.each() {
        if let Key::Expr(expr) = key
            && let Some(name) = variable(expr)
            && function.is_number(name)
        {
            let message = format!(
                "a key is text, and `{name}` is none: write `{before}\"<{name}>\"`, or with a word \
                 before it, as in `{before}\"order:<{name}>\"`"
            );
            return Err(Error::new_spanned(expr, message));
        }
    }
    args.key.check_names(&function.template_names())
}

/// Checks that only one argument says who may hold a key.
pub(super) fn check_sharing(args: &Args, _: &Function) -> Result<()> {
    if let Some(one) = args.sharing.as_ref().filter(|sharing| sharing.is_one()) {
        let message = "one permit is an exclusive lock, which is the default: remove `permits`";
        return Err(Error::new_spanned(one.expr(), message));
    }
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
