//! The words in the attribute's parentheses.

use proc_macro2::{Ident, Span};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Result, Token};

/// A store, by the name of its tests.
#[derive(Debug)]
pub struct Store {
    pub name: &'static str,
    /// Whether its only test has a runtime with two threads.
    pub multi_thread: bool,
    /// Whether it is made by an async function.
    pub is_async: bool,
    /// Whether `both_runtimes` makes two tests of it.
    pub has_both: bool,
}

const STORES: [Store; 6] = [
    Store { name: "memory", multi_thread: false, is_async: false, has_both: true },
    Store { name: "redis", multi_thread: true, is_async: false, has_both: true },
    Store { name: "slots", multi_thread: false, is_async: true, has_both: false },
    Store { name: "cluster", multi_thread: false, is_async: true, has_both: false },
    Store { name: "postgres", multi_thread: false, is_async: true, has_both: false },
    Store { name: "redlock", multi_thread: true, is_async: false, has_both: false },
];

const BOTH_RUNTIMES: &str = "both_runtimes";

/// The stores that a claim holds on, each with the place where it is named.
#[derive(Debug)]
pub struct Words {
    pub stores: Vec<(&'static Store, Span)>,
    pub both_runtimes: bool,
}

impl Parse for Words {
    fn parse(input: ParseStream) -> Result<Words> {
        let mut words = Words { stores: Vec::new(), both_runtimes: false };
        for word in Punctuated::<Ident, Token![,]>::parse_terminated(input)? {
            words.add(&word)?;
        }
        if words.stores.is_empty() {
            return Err(Error::new(Span::call_site(), format!("name a store: {}", known())));
        }
        Ok(words)
    }
}

impl Words {
    fn add(&mut self, word: &Ident) -> Result<()> {
        let is_new = if word == BOTH_RUNTIMES {
            !std::mem::replace(&mut self.both_runtimes, true)
        } else if let Some(store) = STORES.iter().find(|store| word == store.name) {
            let is_new = self.stores.iter().all(|(other, _)| other.name != store.name);
            self.stores.push((store, word.span()));
            is_new
        } else {
            let message = format!("no store is called `{word}`; the stores are {}", known());
            return Err(Error::new(word.span(), message));
        };
        if is_new { Ok(()) } else { Err(Error::new(word.span(), format!("`{word}` stands twice"))) }
    }
}

fn known() -> String {
    let names: Vec<_> = STORES.iter().map(|store| format!("`{}`", store.name)).collect();
    format!("{}, and `{BOTH_RUNTIMES}` goes with `memory` and `redis`", names.join(", "))
}
