//! The Lua scripts, by their hashes.

use std::io::Write;
use std::sync::LazyLock;

use redis::{Arg, Cmd, RedisWrite, ToRedisArgs};

use crate::key::LockKey;
use crate::side::{SIDE_MORE, write_side};

/// A script, its SHA-1, which is hashed once, and the kinds of side keys that it works on.
pub(super) struct Script {
    code: &'static str,
    hash: LazyLock<String>,
    sides: &'static [&'static str],
}

macro_rules! script {
    ($sides:expr, $($file:literal),+) => {
        Script {
            code: concat!($(include_str!($file)),+),
            hash: LazyLock::new(|| {
                redis::Script::new(concat!($(include_str!($file)),+)).get_hash().to_owned()
            }),
            sides: &$sides,
        }
    };
}

pub(super) static ACQUIRE: Script =
    script!(["q", "w", "f"], "scripts/queue.lua", "scripts/grant.lua", "scripts/acquire.lua");
pub(super) static RELEASE: Script =
    script!(["q", "w", "f"], "scripts/alone.lua", "scripts/queue.lua", "scripts/release.lua");
pub(super) static GIVE_BACK: Script = script!(["q"], "scripts/give_back.lua");
pub(super) static FREE: Script = script!([], "scripts/free.lua");
pub(super) static RENEW: Script = script!([], "scripts/renew.lua");
pub(super) static RAISE: Script = script!(["f"], "scripts/raise.lua");
pub(super) static RIGHTS: Script = script!(["q", "w", "f"], "scripts/rights.lua");

/// What is for several locks: `each.lua` does with each of them what stands before it.
pub(super) static ACQUIRE_ALL: Script = script!(
    ["q", "w", "f"],
    "scripts/several.lua",
    "scripts/queue.lua",
    "scripts/grant.lua",
    "scripts/acquire_all.lua"
);
pub(super) static RELEASE_EACH: Script = script!(
    ["q", "w", "f"],
    "scripts/several.lua",
    "scripts/queue.lua",
    "scripts/one.lua",
    "scripts/alone.lua",
    "scripts/release.lua",
    "scripts/each.lua"
);
pub(super) static RENEW_EACH: Script = script!(
    ["q", "w", "f"],
    "scripts/several.lua",
    "scripts/one.lua",
    "scripts/renew.lua",
    "scripts/each.lua"
);

/// What is done with the deferred calls of one function.
#[cfg(feature = "defer")]
pub(super) mod jobs {
    use super::{LazyLock, Script};

    const SIDES: [&str; 6] = ["d", "r", "x", "u", "i", "o"];

    pub(in super::super) static PUT: Script =
        script!(SIDES, "scripts/jobs/room.lua", "scripts/jobs/jobs.lua", "scripts/jobs/put.lua");
    pub(in super::super) static TAKE: Script =
        script!(SIDES, "scripts/jobs/jobs.lua", "scripts/jobs/take.lua");
    pub(in super::super) static KEEP: Script =
        script!(SIDES, "scripts/jobs/jobs.lua", "scripts/jobs/keep.lua");
    pub(in super::super) static SETTLE: Script =
        script!(SIDES, "scripts/jobs/jobs.lua", "scripts/jobs/settle.lua");
    pub(in super::super) static LIST: Script =
        script!(SIDES, "scripts/jobs/jobs.lua", "scripts/jobs/list.lua");
    pub(in super::super) static AMEND: Script =
        script!(SIDES, "scripts/jobs/jobs.lua", "scripts/jobs/amend.lua");
    pub(in super::super) static RIGHTS: Script = script!(SIDES, "scripts/rights.lua");
    #[cfg(feature = "look")]
    pub(in super::super) static ALL: [&Script; 6] = [&PUT, &TAKE, &KEEP, &SETTLE, &LIST, &AMEND];
}

/// What tells about locks.
#[cfg(feature = "look")]
pub(super) mod look {
    use super::{LazyLock, Script};

    pub(in super::super) static LOCKS: Script = script!(["q"], "scripts/look/locks.lua");
    pub(in super::super) static LINE: Script = script!(["q", "w"], "scripts/look/line.lua");
    pub(in super::super) static ALL: [&Script; 2] = [&LOCKS, &LINE];
}

impl Script {
    /// The commands that it calls by their names, in lower case.
    #[cfg(feature = "look")]
    pub(super) fn commands(&self) -> impl Iterator<Item = String> {
        let calls = self.code.split("redis.").skip(1);
        calls.filter_map(|call| {
            let name = call.strip_prefix("call('").or_else(|| call.strip_prefix("pcall('"))?;
            name.split_once('\'').map(|(name, _)| name.to_lowercase())
        })
    }

    /// The call by hash, which a server that does not know the script answers with NOSCRIPT.
    pub(super) fn by_hash(&self, keys: &[LockKey], args: &[&str]) -> Cmd {
        self.call("EVALSHA", &self.hash, keys, args)
    }

    /// The call by text. One command, so that no flush comes between loading and calling.
    pub(super) fn by_text(&self, keys: &[LockKey], args: &[&str]) -> Cmd {
        self.call("EVAL", self.code, keys, args)
    }

    /// Whether a command is a call by hash.
    pub(super) fn is_called_by(&self, command: &Cmd) -> bool {
        let words = ["EVALSHA", self.hash.as_str()];
        let mut args = command.args_iter();
        words.iter().all(|word| args.next() == Some(Arg::Simple(word.as_bytes())))
    }

    /// One call for several calls by hash: first all keys, and then what else each was given.
    pub(super) fn merged<'a>(&self, calls: impl ExactSizeIterator<Item = &'a Cmd> + Clone) -> Cmd {
        let (count, of_each) = (calls.len(), 1 + self.sides.len());
        let args = |call: &'a Cmd| {
            call.args_iter().skip(3).filter_map(|arg| match arg {
                Arg::Simple(arg) => Some(arg),
                _ => None,
            })
        };
        let mut merged = Cmd::new();
        merged.arg("EVALSHA").arg(&*self.hash).arg(count * of_each);
        for key in calls.clone().flat_map(|call| args(call).take(of_each)) {
            merged.arg(key);
        }
        for arg in calls.flat_map(|call| args(call).skip(of_each)) {
            merged.arg(arg);
        }
        merged
    }

    fn call(&self, verb: &str, script: &str, keys: &[LockKey], args: &[&str]) -> Cmd {
        let of_each = 1 + self.sides.len();
        let count = keys.len() * of_each;
        let keys_len: usize = keys.iter().map(|key| key.as_str().len() + SIDE_MORE).sum();
        let args_len: usize = args.iter().map(|arg| arg.len()).sum();
        let room = verb.len() + script.len() + 4 + of_each * keys_len + args_len;
        let mut cmd = Cmd::with_capacity(3 + count + args.len(), room);
        cmd.arg(verb).arg(script).arg(count);
        for key in keys.iter().map(LockKey::as_str) {
            cmd.arg(key);
            for kind in self.sides {
                cmd.arg(Side { key, kind });
            }
        }
        cmd.arg(args);
        cmd
    }
}

/// A side key, written into a command as it is made.
struct Side<'a> {
    key: &'a str,
    kind: &'a str,
}

impl ToRedisArgs for Side<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let mut arg = out.writer_for_next_arg();
        // A command is written to memory, where nothing fails.
        write_side(self.key, self.kind, |part| drop(arg.write_all(part.as_bytes())));
    }
}
