//! From a claim to its tests.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::{Error, ItemFn, Result};

use crate::words::{Store, Words};

/// The claim, and a module of its name with its tests. After a mistake the claim stays, so that the
/// mistake is the only error.
pub fn expand(words: TokenStream, claim: TokenStream) -> TokenStream {
    let tests = tests(words, claim.clone()).unwrap_or_else(Error::into_compile_error);
    quote! { #claim #tests }
}

fn tests(words: TokenStream, claim: TokenStream) -> Result<TokenStream> {
    let words: Words = syn::parse2(words)?;
    let claim: ItemFn = syn::parse2(claim)?;
    if claim.sig.asyncness.is_none() || claim.sig.inputs.len() != 1 {
        let message = "a claim is an `async fn` that takes one `&Backend`";
        return Err(Error::new_spanned(&claim.sig, message));
    }
    let name = &claim.sig.ident;
    if words.both_runtimes && !words.stores.iter().any(|(store, _)| store.has_both) {
        return Err(Error::new_spanned(name, "neither `memory` nor `redis` has `both_runtimes`"));
    }
    let tests = words.stores.iter().flat_map(|(store, span)| {
        let single = Ident::new(store.name, *span);
        match words.both_runtimes && store.has_both {
            false => vec![test(name, store, single, store.multi_thread)],
            true => {
                let multi = format_ident!("{single}_multi_thread");
                vec![test(name, store, single, false), test(name, store, multi, true)]
            }
        }
    });
    Ok(quote! { mod #name { #(#tests)* } })
}

fn test(claim: &Ident, store: &Store, test: Ident, multi_thread: bool) -> TokenStream {
    let runtime = multi_thread.then(|| quote! { (flavor = "multi_thread", worker_threads = 2) });
    let make = Ident::new(store.name, Span::call_site());
    let made = store.is_async.then(|| quote! { .await });
    quote! {
        #[::tokio::test #runtime]
        async fn #test() {
            let backend = ::lockmacro_tests::Backend::#make() #made;
            ::lockmacro_tests::in_time(super::#claim(&backend)).await;
            backend.keeps_nothing().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(words: TokenStream) -> String {
        let claim = quote! { async fn it_holds(backend: &Backend) {} };
        expand(words, claim).to_string()
    }

    /// The names of the tests that a claim has, each with whether its runtime has several threads.
    fn names(words: TokenStream) -> Vec<(String, bool)> {
        let file: syn::File = syn::parse_str(&expanded(words)).expect("items");
        let [syn::Item::Fn(claim), syn::Item::Mod(module)] = file.items.as_slice() else {
            panic!("not a claim and a module");
        };
        assert_eq!([&claim.sig.ident, &module.ident], ["it_holds"; 2]);
        let (_, items) = module.content.as_ref().expect("tests");
        let tests = items.iter().map(|item| match item {
            syn::Item::Fn(test) => {
                let multi_thread = quote! { #test }.to_string().contains("multi_thread\"");
                (test.sig.ident.to_string(), multi_thread)
            }
            _ => panic!("not a test"),
        });
        tests.collect()
    }

    fn of(names: &[(&str, bool)]) -> Vec<(String, bool)> {
        names.iter().map(|(name, multi)| ((*name).to_owned(), *multi)).collect()
    }

    #[test]
    fn each_store_has_a_test_of_its_name() {
        let all = quote! { memory, redis, slots, cluster, postgres, redlock };
        let multi = ["redis", "redlock"];
        let want = ["memory", "redis", "slots", "cluster", "postgres", "redlock"];
        assert_eq!(names(all), of(&want.map(|name| (name, multi.contains(&name)))));
    }

    #[test]
    fn memory_and_redis_have_two_tests_on_both_runtimes() {
        let want = [
            ("memory", false),
            ("memory_multi_thread", true),
            ("redis", false),
            ("redis_multi_thread", true),
            ("cluster", false),
        ];
        assert_eq!(names(quote! { memory, redis, cluster, both_runtimes }), of(&want));
    }

    #[test]
    fn a_mistake_is_one_error_and_the_claim_stays() {
        for (words, error) in [
            (quote! { memory, mysql }, "no store is called `mysql`; the stores are `memory`"),
            (quote! {}, "name a store: `memory`, `redis`"),
            (quote! { redis, redis }, "`redis` stands twice"),
            (quote! { cluster, both_runtimes }, "neither `memory` nor `redis`"),
        ] {
            let expanded = expanded(words);
            assert!(expanded.contains(error), "{expanded}");
            assert!(expanded.contains("async fn it_holds"), "{expanded}");
            assert_eq!(expanded.matches("compile_error").count(), 1, "{expanded}");
        }
        let expanded = expand(quote! { redis }, quote! { fn it_holds() {} }).to_string();
        assert!(expanded.contains("takes one `&Backend`"), "{expanded}");
    }
}
