//! The names of the guard and of the fences.

use proc_macro2::Ident;
use syn::ext::IdentExt as _;
use syn::{Error, Result};

use crate::messages;
use crate::parse::args::Args;
use crate::parse::item::Function;
use crate::parse::key::Key;
use crate::parse::values::Fences;

/// One key has one fence, and several keys have one fence each.
pub(super) fn check_fences(args: &Args, _: &Function) -> Result<()> {
    let Some(fences) = &args.fence else { return Ok(()) };
    let message = match (&args.key, fences) {
        (Key::Several(keys), Fences::Each(names)) if keys.len() == names.len() => return Ok(()),
        (Key::Several(keys), _) => messages::fences_of_several(keys.len()),
        (_, Fences::Name(_)) => return Ok(()),
        (_, Fences::Each(_)) => messages::ONE_FENCE.to_owned(),
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
            return Err(Error::new(binding.span(), messages::shadows(argument, word)));
        }
        if bound.iter().any(|name| name.unraw() == word) {
            return Err(Error::new(binding.span(), messages::bound_twice(word)));
        }
        bound.push(binding);
    }
    Ok(())
}
