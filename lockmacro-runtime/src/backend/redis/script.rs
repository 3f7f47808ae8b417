//! The Lua scripts, by their hashes.

use std::sync::LazyLock;

use redis::Cmd;

/// A script and its SHA-1, which is hashed once.
pub(super) struct Script {
    code: &'static str,
    hash: LazyLock<String>,
}

macro_rules! script {
    ($($file:literal),+) => {
        Script {
            code: concat!($(include_str!($file)),+),
            hash: LazyLock::new(|| {
                redis::Script::new(concat!($(include_str!($file)),+)).get_hash().to_owned()
            }),
        }
    };
}

pub(super) static ACQUIRE: Script = script!("scripts/queue.lua", "scripts/acquire.lua");
pub(super) static RELEASE: Script =
    script!("scripts/alone.lua", "scripts/queue.lua", "scripts/release.lua");
pub(super) static RENEW: Script = script!("scripts/renew.lua");

/// What is for several locks: `each.lua` does with each of them what stands before it.
pub(super) static ACQUIRE_ALL: Script =
    script!("scripts/several.lua", "scripts/queue.lua", "scripts/acquire_all.lua");
pub(super) static RELEASE_EACH: Script = script!(
    "scripts/several.lua",
    "scripts/one.lua",
    "scripts/alone.lua",
    "scripts/queue.lua",
    "scripts/release.lua",
    "scripts/each.lua"
);
pub(super) static RENEW_EACH: Script =
    script!("scripts/several.lua", "scripts/one.lua", "scripts/renew.lua", "scripts/each.lua");

impl Script {
    /// The call by hash, which a server that does not know the script answers with NOSCRIPT.
    pub(super) fn by_hash(&self, keys: &[&str], args: &[&str]) -> Cmd {
        invocation("EVALSHA", &self.hash, keys, args)
    }

    /// The call by text. One command, so that no flush comes between loading and calling.
    pub(super) fn by_text(&self, keys: &[&str], args: &[&str]) -> Cmd {
        invocation("EVAL", self.code, keys, args)
    }
}

fn invocation(command: &str, script: &str, keys: &[&str], args: &[&str]) -> Cmd {
    let mut cmd = redis::cmd(command);
    cmd.arg(script).arg(keys.len()).arg(keys).arg(args);
    cmd
}
