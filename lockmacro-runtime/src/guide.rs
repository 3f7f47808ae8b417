//! The guide: the pages of `docs/`, whose examples are tests here.
//!
// In a page, `[Keys]` is a link to the file `keys.md`. The definitions of `links.md` come first,
// and the first definition of a link is the one that counts.
#![doc = include_str!("guide/links.md")]
#![doc = include_str!("../docs/README.md")]

macro_rules! pages {
    ($($name:ident $file:literal)+) => {
        $(
            #[doc = include_str!("guide/links.md")]
            // The examples use these features.
            #[cfg_attr(
                any(
                    not(doctest),
                    all(feature = "macros", feature = "defer", feature = "test-util")
                ),
                doc = include_str!(concat!("../docs/", $file))
            )]
            pub mod $name {}
        )+
    };
}

pages! {
    busy "busy.md"
    reuse "reuse.md"
    coming_from "coming-from.md"
    deferred_jobs "deferred-jobs.md"
    fences "fences.md"
    first_lock "first-lock.md"
    keys "keys.md"
    leases "leases.md"
    logs "logs.md"
    metrics "metrics.md"
    operation "operation.md"
    postgres "postgres.md"
    protocol "protocol.md"
    re_entry "re-entry.md"
    redis "redis.md"
    scheduled_jobs "scheduled-jobs.md"
    scripts "scripts.md"
    settings "settings.md"
    several_keys "several-keys.md"
    sharing "sharing.md"
    stores "stores.md"
    sync_code "sync-code.md"
    testing "testing.md"
    tool "tool.md"
    trouble "trouble.md"
    waiting "waiting.md"
    what_it_does_not_do "what-it-does-not-do.md"
}
