//! The Lua scripts.

use std::sync::LazyLock;

use crate::store::redis::client::script::Script;

macro_rules! script {
    ($sides:expr, $($file:literal),+) => { script!(merges: false, $sides, $($file),+) };
    (merges: $merges:literal, $sides:expr, $($file:literal),+) => {
        Script {
            code: concat!($(include_str!($file)),+),
            hash: LazyLock::new(|| {
                redis::Script::new(concat!($(include_str!($file)),+)).get_hash().to_owned()
            }),
            sides: &$sides,
            merges: $merges,
        }
    };
}

pub(crate) static ACQUIRE: Script =
    script!(["q", "w", "f"], "scripts/queue.lua", "scripts/grant.lua", "scripts/acquire.lua");
pub(crate) static RELEASE: Script =
    script!(["q", "w", "f"], "scripts/alone.lua", "scripts/queue.lua", "scripts/release.lua");
pub(crate) static GIVE_BACK: Script = script!(merges: true, ["q"], "scripts/give_back.lua");
pub(crate) static FREE: Script = script!([], "scripts/free.lua");
pub(crate) static RENEW: Script = script!([], "scripts/renew.lua");
pub(crate) static RAISE: Script = script!(["f"], "scripts/raise.lua");
pub(crate) static RIGHTS: Script = script!(["q", "w", "f"], "scripts/rights.lua");

/// What is for several locks: `each.lua` does with each of them what stands before it.
pub(crate) static ACQUIRE_ALL: Script = script!(
    ["q", "w", "f"],
    "scripts/several.lua",
    "scripts/queue.lua",
    "scripts/grant.lua",
    "scripts/acquire_all.lua"
);
pub(crate) static RELEASE_EACH: Script = script!(
    ["q", "w", "f"],
    "scripts/several.lua",
    "scripts/queue.lua",
    "scripts/one.lua",
    "scripts/alone.lua",
    "scripts/release.lua",
    "scripts/each.lua"
);
pub(crate) static RENEW_EACH: Script = script!(
    ["q", "w", "f"],
    "scripts/several.lua",
    "scripts/one.lua",
    "scripts/renew.lua",
    "scripts/each.lua"
);

/// What is done with the deferred calls of one function.
#[cfg(feature = "defer")]
pub(crate) mod jobs {
    use super::{LazyLock, Script};

    const SIDES: [&str; 6] = ["d", "r", "x", "u", "i", "o"];

    pub(crate) static PUT: Script =
        script!(SIDES, "scripts/jobs/room.lua", "scripts/jobs/jobs.lua", "scripts/jobs/put.lua");
    pub(crate) static TAKE: Script =
        script!(SIDES, "scripts/jobs/jobs.lua", "scripts/jobs/take.lua");
    pub(crate) static KEEP: Script =
        script!(SIDES, "scripts/jobs/jobs.lua", "scripts/jobs/keep.lua");
    pub(crate) static SETTLE: Script =
        script!(SIDES, "scripts/jobs/jobs.lua", "scripts/jobs/settle.lua");
    pub(crate) static LIST: Script =
        script!(SIDES, "scripts/jobs/jobs.lua", "scripts/jobs/list.lua");
    pub(crate) static AMEND: Script =
        script!(SIDES, "scripts/jobs/jobs.lua", "scripts/jobs/amend.lua");
    #[cfg(feature = "look")]
    pub(crate) static ALL: [&Script; 6] = [&PUT, &TAKE, &KEEP, &SETTLE, &LIST, &AMEND];
}

/// What tells about locks.
#[cfg(feature = "look")]
pub(crate) mod look {
    use super::{LazyLock, Script};

    pub(crate) static LOCKS: Script = script!(["q"], "scripts/look/locks.lua");
    pub(crate) static LINE: Script = script!(["q", "w"], "scripts/look/line.lua");
    pub(crate) static ALL: [&Script; 2] = [&LOCKS, &LINE];
}
