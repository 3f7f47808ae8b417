//! The guide: the pages of `docs/`, whose examples are tests here.
//!
// In a page, `[Waiting]` is a link to the file `waiting.md`. The definitions of `links.md` come
// first, and the first definition of a link is the one that counts.
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
                    all(
                        feature = "macros",
                        feature = "axum",
                        feature = "defer",
                        feature = "test-util"
                    )
                ),
                doc = include_str!(concat!("../docs/", $file))
            )]
            pub mod $name {}
        )+
    };
}

pages! {
    deferred_jobs "deferred-jobs.md"
    errors "reference/errors.md"
    etcd "etcd.md"
    fences "fences.md"
    first_lock "first-lock.md"
    leases "leases.md"
    logs "reference/logs.md"
    metrics "reference/metrics.md"
    migrating "migrating.md"
    operation "operation.md"
    postgres "postgres.md"
    protocol "internals/protocol.md"
    redis "redis.md"
    reuse "reuse.md"
    scheduled_jobs "scheduled-jobs.md"
    scripts "scripts.md"
    servers "reference/servers.md"
    settings "reference/settings.md"
    several_keys "several-keys.md"
    testing "testing.md"
    tool "reference/tool.md"
    waiting "waiting.md"
    web_services "web-services.md"
}
