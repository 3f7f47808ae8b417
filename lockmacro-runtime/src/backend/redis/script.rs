//! The Lua scripts, by their hashes.

use std::sync::LazyLock;

use redis::Cmd;

use crate::side::{SIDE_MORE, side};

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
    script!(["q", "w", "f"], "scripts/queue.lua", "scripts/acquire.lua");
pub(super) static RELEASE: Script =
    script!(["q", "w", "f"], "scripts/alone.lua", "scripts/queue.lua", "scripts/release.lua");
pub(super) static RENEW: Script = script!([], "scripts/renew.lua");

impl Script {
    /// The call by hash, which a server that does not know the script answers with NOSCRIPT.
    pub(super) fn by_hash(&self, key: &str, args: &[&str]) -> Cmd {
        self.call("EVALSHA", &self.hash, key, args)
    }

    /// The call by text. One command, so that no flush comes between loading and calling.
    pub(super) fn by_text(&self, key: &str, args: &[&str]) -> Cmd {
        self.call("EVAL", self.code, key, args)
    }

    fn call(&self, verb: &str, script: &str, key: &str, args: &[&str]) -> Cmd {
        let keys = 1 + self.sides.len();
        let args_len: usize = args.iter().map(|arg| arg.len()).sum();
        let room = verb.len() + script.len() + 1 + keys * (key.len() + SIDE_MORE) + args_len;
        let mut cmd = Cmd::with_capacity(3 + keys + args.len(), room);
        cmd.arg(verb).arg(script).arg(keys).arg(key);
        for kind in self.sides {
            cmd.arg(side(key, kind));
        }
        cmd.arg(args);
        cmd
    }
}
