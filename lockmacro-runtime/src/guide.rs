//! The guide: the pages of `docs/`, whose examples are tests here.
//!
// In a page, `[Keys]` is a link to the file `keys.md`. The definitions of `links.md` come first, and
// the first definition of a link is the one that counts.
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
    access "access.md"
    busy "busy.md"
    cluster "cluster.md"
    coming_from "coming-from.md"
    decisions "decisions.md"
    deferred_calls "deferred-calls.md"
    ending "ending.md"
    expansion "expansion.md"
    fences "fences.md"
    first_lock "first-lock.md"
    keys "keys.md"
    limits "limits.md"
    logs "logs.md"
    lost "lost.md"
    memory "memory.md"
    operation "operation.md"
    policies "policies.md"
    protocol "protocol.md"
    re_entry "re-entry.md"
    redis "redis.md"
    redlock "redlock.md"
    replicated "replicated.md"
    scheduled_jobs "scheduled-jobs.md"
    sentinel "sentinel.md"
    settings "settings.md"
    several_keys "several-keys.md"
    sharing "sharing.md"
    stores "stores.md"
    sync_code "sync-code.md"
    testing "testing.md"
    time "time.md"
    tls "tls.md"
    tool "tool.md"
    trouble "trouble.md"
    virtual_time "virtual-time.md"
    waiting "waiting.md"
    without_the_lock "without-the-lock.md"
}
