//! The Lua scripts.

use crate::protocol::request::Request;
use crate::store::redis::client::script::Script;

macro_rules! script {
    (merges: $companions:expr, $file:literal) => {
        script!(
            code: concat!(include_str!($file), include_str!("scripts/for_each_call.lua")),
            $companions,
            true
        )
    };
    // The files after the `;` are a script for one lock, which is run for each of several.
    (each_lock: $companions:expr, $($file:literal),*; $($one:literal),+) => {
        script!(
            code: concat!(
                include_str!("scripts/several_locks.lua"),
                $(include_str!($file),)*
                "local function one()\n",
                $(include_str!($one),)+
                "end\n",
                include_str!("scripts/for_each_lock.lua")
            ),
            $companions,
            false
        )
    };
    (code: $code:expr, $companions:expr, $merges:literal) => {
        Script::new($code, &$companions, $merges)
    };
    ($companions:expr, $($file:literal),+) => {
        script!(code: concat!($(include_str!($file)),+), $companions, false)
    };
}

/// The companion keys of a lock, see `queue.lua`.
const OF_A_LOCK: [&str; 4] = ["q", "w", "f", "h"];

pub(crate) static ACQUIRE: Script =
    script!(OF_A_LOCK, "scripts/queue.lua", "scripts/grant.lua", "scripts/acquire.lua");
pub(crate) static ACQUIRE_SHARED: Script =
    script!(merges: ["q", "h"], "scripts/acquire_shared.lua");
pub(crate) static RELEASE: Script =
    script!(OF_A_LOCK, "scripts/release_unqueued.lua", "scripts/queue.lua", "scripts/release.lua");
pub(crate) static RELEASE_UNCONTENDED: Script =
    script!(merges: ["q"], "scripts/release_uncontended.lua");
pub(crate) static RELEASE_SHARED: Script =
    script!(merges: ["q", "h"], "scripts/release_shared.lua");
pub(crate) static RELEASE_MIGRATING: Script = script!([], "scripts/release_migrating.lua");
pub(crate) static RELEASE_MIGRATING_SHARED: Script =
    script!(["h"], "scripts/release_migrating.lua");
pub(crate) static RENEW: Script = script!([], "scripts/renew.lua");
pub(crate) static RENEW_SHARED: Script = script!(["h"], "scripts/renew.lua");
pub(crate) static RAISE_FENCE: Script = script!(["f"], "scripts/raise_fence.lua");
pub(crate) static RIGHTS: Script = script!(OF_A_LOCK, "scripts/check_rights.lua");

/// The scripts for several locks, which begin with `several_locks.lua`.
pub(crate) static ACQUIRE_ALL: Script = script!(
    OF_A_LOCK,
    "scripts/several_locks.lua",
    "scripts/queue.lua",
    "scripts/grant.lua",
    "scripts/acquire_all.lua"
);
pub(crate) static RELEASE_ALL: Script = script!(
    each_lock: OF_A_LOCK,
    "scripts/queue.lua";
    "scripts/release_unqueued.lua",
    "scripts/release.lua"
);
pub(crate) static RENEW_ALL: Script = script!(each_lock: OF_A_LOCK,; "scripts/renew.lua");

/// The scripts that locks may need.
pub(crate) static ALL: [&Script; 11] = [
    &ACQUIRE,
    &ACQUIRE_SHARED,
    &RELEASE_SHARED,
    &ACQUIRE_ALL,
    &RELEASE_MIGRATING,
    &RELEASE_UNCONTENDED,
    &RAISE_FENCE,
    &RELEASE,
    &RELEASE_ALL,
    &RENEW,
    &RENEW_ALL,
];

/// The script that renews the lock of a request, which may have several keys.
pub(crate) fn renew_script(request: &Request) -> &'static Script {
    if !request.several().is_empty() {
        &RENEW_ALL
    } else if request.key.mode().is_exclusive() {
        &RENEW
    } else {
        &RENEW_SHARED
    }
}

/// The scripts for the deferred calls of one function.
#[cfg(feature = "defer")]
pub(crate) mod jobs {
    use super::Script;

    const COMPANIONS: [&str; 6] = ["d", "r", "x", "u", "i", "o"];

    pub(crate) static PUT: Script = script!(
        COMPANIONS,
        "scripts/jobs/check_memory.lua",
        "scripts/jobs/calls.lua",
        "scripts/jobs/put.lua"
    );
    pub(crate) static TAKE: Script =
        script!(COMPANIONS, "scripts/jobs/calls.lua", "scripts/jobs/take.lua");
    pub(crate) static KEEP: Script =
        script!(COMPANIONS, "scripts/jobs/calls.lua", "scripts/jobs/keep.lua");
    pub(crate) static SETTLE: Script =
        script!(COMPANIONS, "scripts/jobs/calls.lua", "scripts/jobs/settle.lua");
    pub(crate) static LIST: Script =
        script!(COMPANIONS, "scripts/jobs/calls.lua", "scripts/jobs/list.lua");
    pub(crate) static RETRY_OR_REMOVE: Script =
        script!(COMPANIONS, "scripts/jobs/calls.lua", "scripts/jobs/retry_or_remove.lua");
    pub(crate) static ALL: [&Script; 6] = [&PUT, &TAKE, &KEEP, &SETTLE, &LIST, &RETRY_OR_REMOVE];
}

/// The scripts that read locks.
#[cfg(feature = "look")]
pub(crate) mod inspect {
    use super::Script;

    pub(crate) static LOCKS: Script = script!(["q", "h"], "scripts/inspect/locks.lua");
    pub(crate) static QUEUE: Script = script!(["q", "w"], "scripts/inspect/queue.lua");
    pub(crate) static ALL: [&Script; 2] = [&LOCKS, &QUEUE];
}

/// The hashes and the names of the scripts, for the trace of a simulation.
#[cfg(all(lockmacro_simulation, feature = "test-util", feature = "defer"))]
pub fn scripts() -> [(&'static str, &'static str); 15] {
    [
        (&ACQUIRE, "acquire"),
        (&ACQUIRE_SHARED, "acquire_shared"),
        (&RELEASE, "release"),
        (&RELEASE_SHARED, "release_shared"),
        (&RELEASE_UNCONTENDED, "release_uncontended"),
        (&RENEW, "renew"),
        (&RAISE_FENCE, "raise_fence"),
        (&RIGHTS, "check_rights"),
        (&ACQUIRE_ALL, "acquire_all"),
        (&RELEASE_ALL, "release_all"),
        (&RENEW_ALL, "renew_all"),
        (&jobs::PUT, "put"),
        (&jobs::TAKE, "take"),
        (&jobs::KEEP, "keep"),
        (&jobs::SETTLE, "settle"),
    ]
    .map(|(script, name): (&'static Script, _)| (script.hash(), name))
}
