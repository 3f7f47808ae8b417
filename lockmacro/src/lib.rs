//! The attribute of lockmacro: a function's body runs under a lock that every process of a fleet
//! respects.
//!
//! Depend on `lockmacro-runtime`, which has the attribute as `lockmacro_runtime::distributed_lock`.
//! This crate only parses, checks and prints. The functions that an expansion calls are in the
//! runtime.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod check;
mod fix;
mod messages;
mod parse;
mod print;

// Beside the sources, as most of it is samples.
#[cfg(test)]
#[path = "../tests/expand/mod.rs"]
mod tests;

use proc_macro::TokenStream;

// Its examples need the runtime, which needs this crate: `lockmacro-examples-tests` runs them.
#[cfg_attr(not(doctest), doc = include_str!("attribute.md"))]
#[proc_macro_attribute]
pub fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    print::expand::attribute(args.into(), item.into()).into()
}
