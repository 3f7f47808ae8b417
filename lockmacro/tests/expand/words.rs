//! Arguments that are misspelt, or called as other libraries call them, and several mistakes.

use proc_macro2::TokenStream;
use quote::quote;

use crate::messages::names::KNOWN;
use crate::print::expand::attribute;

fn errors(args: TokenStream) -> Vec<String> {
    errors_of(args, "async fn audit(id: u64) -> Result<(), Error> {}".parse().unwrap())
}

/// The errors that a function with these arguments gets.
pub(crate) fn errors_of(args: TokenStream, item: TokenStream) -> Vec<String> {
    let file: syn::File = syn::parse2(attribute(args, item)).unwrap();
    let error = |item: syn::Item| match item {
        syn::Item::Macro(error) => Some(error.mac.parse_body::<syn::LitStr>().unwrap().value()),
        _ => None,
    };
    file.items.into_iter().filter_map(error).collect()
}

fn one(args: TokenStream) -> String {
    let errors = errors(args.clone());
    assert_eq!(errors.len(), 1, "{args}: {errors:?}");
    errors.concat()
}

fn with(word: &str) -> String {
    let args: TokenStream = format!("key = \"order:<id>\", {word} = 5").parse().unwrap();
    one(args)
}

#[test]
fn words_of_other_libraries_get_the_right_argument() {
    for (words, mend) in [
        (&["timeout", "waitTime", "retry", "blocking_timeout"][..], "`wait = \"5s\"`"),
        (&["timeout", "leaseTime", "expire", "lockAtMostFor", "px"], "`ttl = \"300s\"`"),
        (&["auto_renew", "autoExtend", "watchdog"], "`renew`"),
        (&["lockAtLeastFor"], "`min_hold = \"5s\"`"),
        (
            &["skip", "failStrategy", "lockFailureStrategy", "on_conflict"],
            "`on_busy = error`, `skip`",
        ),
        (&["latest", "at_most", "debounce"], "`defer(\"30s\", latest, at_most = \"5m\")`"),
        (&["keep", "same", "cache", "idempotency_key"], "`reuse(keep = \"10s\", same"),
        (&["redis", "url", "client"], "`manager = self.locks`"),
        (&["token", "fencing_token"], "`guard = lock`"),
        (&["id", "resource", "prefix"], "`key = \"order:<id>\"`"),
        (&["lockType", "lockModel"], "`shared` lets others in"),
        (&["semaphore", "max_concurrency", "limit"], "`permits = 3` so many"),
        (&["condition"], "write an `if` around the call"),
        (&["policy", "settings"], "`const TTL: Duration = Duration::from_secs(300);`"),
    ] {
        for word in words {
            let error = with(word);
            assert!(error.starts_with(&format!("unknown argument `{word}`: ")), "{error}");
            assert!(error.contains(mend), "{word}: {error}");
        }
    }
    assert!(one(quote!(key = "order:<id>", skip)).contains("`skip`, `fallback(path)`"));
    assert!(one(quote!(key = "order:<id>", defer("30s"))).contains("`defer(\"30s\", latest"));
}

#[test]
fn misspelt_arguments_are_distinguished() {
    for (word, meant) in [
        ("kye", "key"),
        ("kee", "key"),
        ("gaurd", "guard"),
        ("TTL", "ttl"),
        ("tll", "ttl"),
        ("minHold", "min_hold"),
        ("ON_BUSY", "on_busy"),
        ("onbusy", "on_busy"),
        ("Key", "key"),
        ("mesage", "message"),
        ("fense", "fence"),
        ("renw", "renew"),
        ("relese", "release"),
    ] {
        assert_eq!(with(word), format!("unknown argument `{word}`: did you mean `{meant}`?"));
    }
    assert!(with("colour").contains("the known ones are `key`, `ttl`"));
}

#[test]
fn no_known_argument_is_taken_for_another_word() {
    for (known, ..) in KNOWN {
        let errors = errors(format!("{known} = 5").parse().unwrap());
        assert!(!errors.concat().contains("unknown argument"), "{known}: {errors:?}");
    }
}

#[test]
fn a_word_for_the_key_is_not_reported_as_a_missing_key() {
    for args in [
        quote!(id = "order:<id>"),
        quote!(kye = "order:<id>"),
        quote!("order:<id>"),
        quote!("key" = "order:<id>"),
        quote!(key),
        quote!(key = 5),
        quote!(key("order:<id>")),
        quote!(key: "order:<id>"),
    ] {
        one(args);
    }
}

#[test]
fn several_mistakes_are_reported_together() {
    for (args, count) in [
        (quote!(kye = "order:<id>", ttl = 300, gaurd = lock), 3),
        (quote!(key = "order:<sn>", ttl = "1s", timeout = "5s"), 2),
        (quote!(key = "order:{id}", ttl = -5, wait = 0, message = "", renew = true), 5),
        (
            quote!(key = "order:<id>", ttl = "10s", max_hold = "1m", message = "x", on_busy = skip),
            2,
        ),
        (quote!(key = "order:<id>", ttl, wait, on_busy = retry), 3),
        (quote!(tll = "5s", ttl = "5s"), 1),
        (quote!(), 1),
        (quote!(ttl = "5s"), 1),
    ] {
        let errors = errors(args.clone());
        assert_eq!(errors.len(), count, "{args}: {errors:?}");
    }
}

#[test]
fn a_mistake_draws_no_others_after_it() {
    for args in [
        // A lease that is wrong is compared with nothing.
        quote!(key = "order:<id>", ttl = "5x", max_hold = "1m"),
        quote!(key = "order:<id>", tll = "5s", renew),
        quote!(key = "order:<id>", ttl = "5s", renw, max_hold = "1m"),
        quote!(key = "order:<id>", wait = 5 s, ttl = "5s"),
        quote!(key = "order:<id>" ttl = "5s"),
        quote!(ttl = |a, b, key = "order:<id>"),
        quote!(key = "order:<id>", ttl = |a, renew, max_hold = "1m"),
        quote!(key = ["a:<id>", "b:<id>"], fence = [a, b c]),
        quote!(key = 5, fence = [a, b]),
    ] {
        one(args);
    }
}

#[test]
fn a_setting_outside_of_its_place_and_a_word_of_another_library_have_a_fix_of_their_own() {
    let policies = "`defer(\"30s\", latest, at_most = \"5m\")` or `reuse(keep = \"10s\", same";
    let deferred = "after the delay `defer` takes";
    let reused = "`reuse` takes `keep = \"10s\"`";
    for (args, fix) in [
        ("on_busy = at_most(\"1m\")", policies),
        ("on_busy = reuse(keep = \"5s\", at_most = \"1m\")", reused),
        ("on_busy = keep(\"1m\")", policies),
        ("on_busy = defer(\"5s\", keep = \"1m\")", deferred),
        ("on_busy = latest(\"5s\")", policies),
        ("on_busy = reuse(latest)", reused),
        ("on_busy = defer(latest)", "`defer` begins with the time"),
        ("on_busy = debounce", policies),
        ("on_busy = defer(\"5s\", debounce)", deferred),
        ("on_busy = defer(\"5s\", same = \"<id>\")", deferred),
        ("on_busy = retry", "a call waits for a busy lock in a queue"),
    ] {
        let error = one(format!("key = \"order:<id>\", {args}").parse().unwrap());
        assert!(error.contains(fix), "{args}: {error}");
    }
}

#[test]
fn a_path_of_a_function_is_no_misspelt_word() {
    for path in ["S::error", "m::cancel", "self::finish", "Self::canceled"] {
        let args = format!("key = \"order:<id>\", on_lost = {path}").parse().unwrap();
        assert_eq!(errors(args), [""; 0], "{path}");
    }
    let args = "key = \"order:<id>\", on_lost = OnLost::Cancle".parse().unwrap();
    assert!(one(args).contains("on_lost = cancel"));
}
