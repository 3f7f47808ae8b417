//! The names of the guard and of the fences.

use proc_macro2::Ident;
use syn::ext::IdentExt as _;
use syn::{Error, Result};

use crate::parse::args::Args;
use crate::parse::item::Function;
use crate::parse::key::Key;
use crate::parse::values::Fences;

/// One key has one fence, and several keys have one fence each.
pub(super) fn check_fences(args: &Args, _: &Function) -> Result<()> {
    let Some(fences) = &args.fence else {
        return Ok(());
    };
    let message = match (&args.key, fences) {
        (Key::Several(keys), Fences::Each(names)) if keys.len() != names.len() => {
            let keys = keys.len();
            let names = names.len();
            format!(
                "the lock has {keys} keys, and the number of names is {names}: write a name \
                 for each key, in the same order"
            )
        }
        (Key::Several(_), Fences::Name(_)) => {
            "each of several keys has a fence of its own: write a name for each, in the same \
             order, as in `fence = [debit, credit]`"
                .to_owned()
        }
        (Key::Keys(_), Fences::Each(_)) => {
            "the number of keys is known only when the function is called: write `fence = fences`, \
             which is a `Vec<Fence>` in the order of the keys"
                .to_owned()
        }
        (_, Fences::Each(_)) if args.key.is_one() => {
            "one key has one fence: write `fence = fence`".to_owned()
        }
        _ => return Ok(()),
    };
    Err(Error::new(args.span_of("fence"), message))
}

/// A guard or a fence must not shadow another name in the body.
pub(super) fn check_bindings(args: &Args, function: &Function) -> Result<()> {
    let names = function.names();
    let mut bound: Vec<&Ident> = Vec::new();
    let guard = args.guard.iter().map(|guard| ("guard", guard));
    let fences = args.fence.iter().flat_map(Fences::names).map(|fence| ("fence", fence));
    for (argument, binding) in guard.chain(fences) {
        let word = binding.unraw();
        if names.iter().any(|name| name.unraw() == word) {
            let message = format!(
                "`{argument} = {word}` would shadow the function's argument `{word}`: write \
                 another name, such as `{argument} = {word}_{argument}`"
            );
            return Err(Error::new(binding.span(), message));
        }
        if bound.iter().any(|name| name.unraw() == word) {
            let message = match &args.guard {
                Some(guard) if guard.unraw() == word => {
                    format!("`guard` and `fence` are both called `{word}`: write two names")
                }
                _ => format!("two fences are called `{word}`: write two names"),
            };
            return Err(Error::new(binding.span(), message));
        }
        bound.push(binding);
    }
    Ok(())
}
