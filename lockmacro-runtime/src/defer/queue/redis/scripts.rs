//! The scripts for the jobs of one function.

use crate::store::redis::client::script::Script;

/// The companion keys of a function's key, see `common.lua`.
const COMPANIONS: [&str; 6] = ["d", "r", "x", "u", "i", "o"];

macro_rules! script {
    ($($file:literal),+) => {
        Script::new(concat!($(include_str!($file)),+), &COMPANIONS)
    };
}

pub(crate) static PUT: Script = script!("check_memory.lua", "common.lua", "put.lua");
pub(crate) static TAKE: Script = script!("common.lua", "take.lua");
pub(crate) static KEEP: Script = script!("common.lua", "keep.lua");
pub(crate) static SETTLE: Script = script!("common.lua", "settle.lua");
pub(crate) static LIST: Script = script!("common.lua", "list.lua");
pub(crate) static RETRY_OR_REMOVE: Script = script!("common.lua", "retry_or_remove.lua");
pub(crate) static SUPERSEDE: Script = script!("common.lua", "supersede.lua");

/// All of them, for the rights of a user and for the trace of a simulation.
#[cfg(any(feature = "inspect", all(lockmacro_simulation, feature = "test-util")))]
pub(crate) static ALL: [&Script; 7] =
    [&PUT, &TAKE, &KEEP, &SETTLE, &LIST, &RETRY_OR_REMOVE, &SUPERSEDE];

/// The hashes and the texts of the scripts of locks and jobs, for the trace of a simulation.
#[cfg(all(lockmacro_simulation, feature = "test-util"))]
pub fn scripts() -> impl Iterator<Item = (&'static str, &'static str)> {
    use crate::store::redis::scripts::{ALL as OF_LOCKS, RIGHTS};

    let all = OF_LOCKS.into_iter().chain(ALL).chain([&RIGHTS]);
    all.map(|script| (script.hash(), script.code))
}
