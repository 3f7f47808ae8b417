//! A Lua script, and a call of it.

use std::io::Write;
use std::sync::OnceLock;

use redis::{Arg, Cmd, RedisWrite, ToRedisArgs};

use crate::value::companion::{COMPANION_MORE, write_companion};
use crate::value::key::LockKey;

/// A script, its SHA-1 (computed once), and the kinds of companion keys that it takes.
pub(crate) struct Script {
    pub(crate) code: &'static str,
    hash: OnceLock<String>,
    companions: &'static [&'static str],
    /// Whether calls of many callers may be merged into one: the script then returns a reply for
    /// each.
    pub(crate) merges: bool,
    /// The argument that says until when a call may be served, by the server's clock in
    /// microseconds; 0 is without an end.
    pub(crate) ends: Option<usize>,
}

impl Script {
    pub(crate) const fn new(code: &'static str, companions: &'static [&'static str]) -> Self {
        Self { code, hash: OnceLock::new(), companions, merges: false, ends: None }
    }

    /// The script, with calls of many callers merged into one, as `for_each_call.lua` takes them.
    pub(crate) const fn merging(mut self) -> Self {
        self.merges = true;
        self
    }

    /// The script, of which no call is served after the time in this argument.
    pub(crate) const fn with_end(mut self, argument: usize) -> Self {
        self.ends = Some(argument);
        self
    }

    pub(crate) fn hash(&self) -> &str {
        self.hash.get_or_init(|| redis::Script::new(self.code).get_hash().to_owned())
    }

    /// The commands that the script calls by their names, in lower case.
    pub(crate) fn commands(&self) -> impl Iterator<Item = String> {
        let calls = self.code.split("redis.").skip(1);
        calls.filter_map(|call| {
            let name = call.strip_prefix("call('").or_else(|| call.strip_prefix("pcall('"))?;
            name.split_once('\'').map(|(name, _)| name.to_lowercase())
        })
    }

    /// A call with these keys and arguments.
    pub(crate) fn with<'a>(
        &'static self,
        keys: &'a [LockKey],
        args: &'a [&'a str],
    ) -> ScriptCall<'a> {
        ScriptCall { script: self, keys, args, sent: Sent::ByHash, not_after: None }
    }

    /// One call made of several calls by hash: first the keys of all, then the other arguments of
    /// each.
    pub(crate) fn merged<'a>(&self, calls: impl ExactSizeIterator<Item = &'a Cmd> + Clone) -> Cmd {
        let count = calls.len();
        let of_each = 1 + self.companions.len();
        let args = |call: &'a Cmd| {
            call.args_iter().skip(3).filter_map(|arg| match arg {
                Arg::Simple(arg) => Some(arg),
                _ => None,
            })
        };
        let mut merged = Cmd::new();
        merged.arg("EVALSHA").arg(self.hash()).arg(count * of_each);
        for key in calls.clone().flat_map(|call| args(call).take(of_each)) {
            merged.arg(key);
        }
        for arg in calls.flat_map(|call| args(call).skip(of_each)) {
            merged.arg(arg);
        }
        merged
    }
}

/// What stands for a script in a call of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The hash first, and the text where the server does not know that.
    ByHash,
    /// The text at once: a call whose answer may never be read has no second message.
    ByText,
}

/// A call of a script, by its hash or by its text.
#[derive(Clone, Copy)]
pub(crate) struct ScriptCall<'a> {
    pub(crate) script: &'static Script,
    pub(crate) keys: &'a [LockKey],
    pub(crate) args: &'a [&'a str],
    pub(crate) sent: Sent,
    /// Until when it may be served, if its script takes that.
    pub(crate) not_after: Option<u64>,
}

impl ScriptCall<'_> {
    /// The call by hash, which a server that does not know the script answers with NOSCRIPT.
    pub(crate) fn by_hash(self) -> Cmd {
        self.command("EVALSHA", self.script.hash())
    }

    /// The call by text. It is one command, so that no flush comes between loading and calling.
    pub(crate) fn by_text(self) -> Cmd {
        self.command("EVAL", self.script.code)
    }

    fn command(self, verb: &str, name: &str) -> Cmd {
        let Self { script, keys, args, not_after, .. } = self;
        let of_each = 1 + script.companions.len();
        let count = keys.len() * of_each;
        let keys_len: usize = keys.iter().map(|key| key.as_str().len() + COMPANION_MORE).sum();
        let args_len: usize = args.iter().map(|arg| arg.len()).sum();
        let capacity = verb.len() + name.len() + 4 + of_each * keys_len + args_len;
        let mut cmd = Cmd::with_capacity(3 + count + args.len(), capacity);
        cmd.arg(verb).arg(name).arg(count);
        for key in keys.iter().map(LockKey::as_str) {
            cmd.arg(key);
            for kind in script.companions {
                cmd.arg(CompanionKey { key, kind });
            }
        }
        for (nth, arg) in args.iter().enumerate() {
            match not_after {
                Some(not_after) if script.ends == Some(nth) => cmd.arg(not_after),
                _ => cmd.arg(arg),
            };
        }
        cmd
    }
}

/// A companion key, written straight into the command.
struct CompanionKey<'a> {
    key: &'a str,
    kind: &'a str,
}

impl ToRedisArgs for CompanionKey<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let mut arg = out.writer_for_next_arg();
        // The command is in memory, where a write cannot fail.
        write_companion(self.key, self.kind, |part| drop(arg.write_all(part.as_bytes())));
    }
}
