//! The Lua scripts.

use std::collections::BTreeSet;

use crate::protocol::request::Request;
use crate::store::redis::client::script::Script;

macro_rules! files {
    ($($file:literal),+) => {
        concat!($(include_str!(concat!("scripts/", $file))),+)
    };
}

macro_rules! script {
    ($companions:expr, $($part:expr),+) => {
        Script::new(concat!($($part),+), &$companions)
    };
}

/// The companion keys of a lock, see `queue.lua`.
const OF_A_LOCK: [&str; 4] = ["q", "w", "f", "h"];

/// The argument of both scripts with the end of the time in which they may be served.
const NOT_AFTER: usize = 6;

pub(crate) static ACQUIRE: Script =
    script!(OF_A_LOCK, files!("queue.lua", "grant.lua", "acquire.lua")).with_end(NOT_AFTER);
pub(crate) static ACQUIRE_SHARED: Script =
    script!(["q", "h"], files!("acquire_shared.lua", "for_each_call.lua")).merging();
pub(crate) static RELEASE: Script =
    script!(OF_A_LOCK, files!("release_unqueued.lua", "queue.lua", "release.lua"));
pub(crate) static RELEASE_UNCONTENDED: Script =
    script!(["q"], files!("release_uncontended.lua", "for_each_call.lua")).merging();
pub(crate) static RELEASE_SHARED: Script =
    script!(["q", "h"], files!("release_shared.lua", "for_each_call.lua")).merging();
pub(crate) static RELEASE_MIGRATING: Script = script!([], files!("release_migrating.lua"));
pub(crate) static RELEASE_MIGRATING_SHARED: Script =
    script!(["h"], files!("release_migrating.lua"));
static RENEW: Script = script!([], files!("renew.lua"));
static RENEW_SHARED: Script = script!(["h"], files!("renew.lua"));
pub(crate) static RAISE_FENCE: Script = script!(["f"], files!("raise_fence.lua"));
pub(crate) static REPAIR: Script = script!(["f"], files!("repair.lua"));
pub(crate) static RIGHTS: Script = script!(OF_A_LOCK, files!("check_rights.lua"));

/// The scripts for several locks. A script for one lock is made the function `one`.
pub(crate) static ACQUIRE_ALL: Script =
    script!(OF_A_LOCK, files!("several_locks.lua", "queue.lua", "grant.lua", "acquire_all.lua"))
        .with_end(NOT_AFTER);
pub(crate) static RELEASE_ALL: Script = script!(
    OF_A_LOCK,
    files!("several_locks.lua", "queue.lua"),
    "local function one()\n",
    files!("release_unqueued.lua", "release.lua"),
    "end\n",
    files!("for_each_lock.lua")
);
static RENEW_ALL: Script = script!(
    OF_A_LOCK,
    files!("several_locks.lua"),
    "local function one()\n",
    files!("renew.lua"),
    "end\n",
    files!("for_each_lock.lua")
);

/// The scripts that locks may need.
pub(crate) static ALL: [&Script; 12] = [
    &ACQUIRE,
    &ACQUIRE_SHARED,
    &RELEASE_SHARED,
    &ACQUIRE_ALL,
    &RELEASE_MIGRATING,
    &RELEASE_UNCONTENDED,
    &RAISE_FENCE,
    &REPAIR,
    &RELEASE,
    &RELEASE_ALL,
    &RENEW,
    &RENEW_ALL,
];

/// Those of them for a user who may use every key, or some keys only.
pub(crate) fn called(every_key: bool) -> impl Iterator<Item = &'static Script> {
    // Of some keys only, the whole script is called in place of this one.
    let is_called =
        move |script: &&'static Script| every_key || !std::ptr::eq(*script, &ACQUIRE_SHARED);
    ALL.into_iter().filter(is_called)
}

/// The commands for pushed grants, on one server and in a cluster. Without them waiters poll.
pub(crate) const OF_WAITERS: [[&str; 3]; 2] =
    [["subscribe", "publish", "pubsub|numsub"], ["ssubscribe", "spublish", "pubsub|shardnumsub"]];

/// The commands that scripts need, but for one for pushes, which fails no script.
pub(crate) fn needed_by(scripts: impl IntoIterator<Item = &'static Script>) -> BTreeSet<String> {
    let commands = scripts.into_iter().flat_map(Script::commands);
    commands.filter(|command| command != "pubsub").collect()
}

/// The script that renews the lock of a request, which may have several keys.
pub(crate) fn renew_script(request: &Request) -> &'static Script {
    if !request.ask.several.is_empty() {
        &RENEW_ALL
    } else if request.ask.key.mode().is_exclusive() {
        &RENEW
    } else {
        &RENEW_SHARED
    }
}
