//! The scripts of the runtime that the random schedules do not call: with random arguments.

use std::time::Duration;

use fastrand::Rng;

use super::both::{Both, packed};

macro_rules! script {
    ($($file:literal),+) => {
        concat!($(include_str!(concat!(
            "../../../../../lockmacro-runtime/src/store/redis/scripts/", $file
        ))),+)
    };
}

macro_rules! of_jobs {
    ($($file:literal),+) => {
        concat!($(include_str!(concat!(
            "../../../../../lockmacro-runtime/src/defer/queue/redis/", $file
        ))),+)
    };
}

const ACQUIRE: &str = script!("queue.lua", "grant.lua", "acquire.lua");
const ACQUIRE_ALL: &str = script!("several_locks.lua", "queue.lua", "grant.lua", "acquire_all.lua");
const RAISE_FENCE: &str = script!("raise_fence.lua");
const REPAIR: &str = script!("repair.lua");
const RELEASE_ALL: &str = concat!(
    script!("several_locks.lua", "queue.lua"),
    "local function one()\n",
    script!("release_unqueued.lua", "release.lua"),
    "end\n",
    script!("for_each_lock.lua")
);
const RELEASE_MIGRATING: &str = script!("release_migrating.lua");
const ACQUIRE_SHARED: &str = script!("acquire_shared.lua", "for_each_call.lua");
const RELEASE_SHARED: &str = script!("release_shared.lua", "for_each_call.lua");
const RELEASE_MERGED: &str = script!("release_uncontended.lua", "for_each_call.lua");
const RENEW_ALL: &str = concat!(
    script!("several_locks.lua"),
    "local function one()\n",
    script!("renew.lua"),
    "end\n",
    script!("for_each_lock.lua")
);
const RENEW: &str = script!("renew.lua");
const INSPECT_LOCKS: &str =
    include_str!("../../../../../lockmacro-runtime/src/inspect/redis/locks.lua");
const INSPECT_QUEUE: &str =
    include_str!("../../../../../lockmacro-runtime/src/inspect/redis/queue.lua");
const CHECK_RIGHTS: &str = script!("check_rights.lua");
const WRITE: &str = include_str!("../../../../../lockmacro-runtime/src/value/fence/write.lua");

const PUT: &str = of_jobs!("check_memory.lua", "common.lua", "put.lua");
const TAKE: &str = of_jobs!("common.lua", "take.lua");
const KEEP: &str = of_jobs!("common.lua", "keep.lua");
const SETTLE: &str = of_jobs!("common.lua", "settle.lua");
const LIST: &str = of_jobs!("common.lua", "list.lua");
const RETRY_OR_REMOVE: &str = of_jobs!("common.lua", "retry_or_remove.lua");

/// All keys with their values and when they expire, in an order of its own.
const DUMP: &str = r"
local read = {
  string = function(key) return { redis.call('GET', key) } end,
  hash = function(key)
    local all, pairs = redis.call('HGETALL', key), {}
    for i = 1, #all, 2 do pairs[#pairs + 1] = all[i] .. '=' .. all[i + 1] end
    table.sort(pairs)
    return pairs
  end,
  zset = function(key) return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end,
  list = function(key) return redis.call('LRANGE', key, 0, -1) end,
}
local keys, found = redis.call('KEYS', '*'), {}
table.sort(keys)
for i, key in ipairs(keys) do
  found[i] = { key, redis.call('PEXPIRETIME', key), read[redis.call('TYPE', key).ok](key) }
end
return found";

const RUNS: u64 = 40;
const CALLS: usize = 100;

fn eval(script: &str, keys: &[&str], arguments: &[String]) -> Vec<u8> {
    let count = keys.len().to_string();
    let words = [b"EVAL", script.as_bytes(), count.as_bytes()].into_iter();
    let words = words.chain(keys.iter().map(|key| key.as_bytes()));
    let words = words.chain(arguments.iter().map(String::as_bytes));
    packed(&words.collect::<Vec<_>>())
}

/// Sends random requests to both servers, and compares the replies and all data after each.
fn same_data(next: impl Fn(&mut Rng) -> Vec<u8>) {
    let mut both = Both::start(2);
    both.same(0, &packed(&[b"HELLO", b"3"]));
    both.same(0, &packed(&[b"SUBSCRIBE", b"lm1:worker"]));
    for seed in 0..RUNS {
        let mut rng = Rng::with_seed(seed);
        both.same(1, &packed(&[b"FLUSHALL"]));
        for _ in 0..CALLS {
            both.advance(Duration::from_micros(rng.u64(..2_000_000) * rng.u64(..2)));
            both.same(1, &[next(&mut rng), eval(DUMP, &[], &[])].concat());
            both.same(0, b"");
        }
    }
    assert!(both.unknown().is_empty(), "{:?}", both.unknown());
}

#[test]
fn deferred_calls() {
    let keys = ["{f}", "{f}d", "{f}r", "{f}x", "{f}u", "{f}i", "{f}o"];
    same_data(|rng| {
        let mut one_of = |some: &[&str]| rng.choice(some.iter()).expect("some").to_string();
        let id = one_of(&["a", "b", "c", "d", "\u{e9}"]);
        let nth = one_of(&["1", "2", "3"]);
        let time = one_of(&["0", "1", "700", "5000", "3600000"]);
        let few = one_of(&["0", "1", "2", "100"]);
        let (script, arguments) = match one_of(&["put", "take", "keep", "settle", "list", "retry"])
            .as_str()
        {
            "put" => {
                let (key, keep) = (one_of(&["k", "l"]), one_of(&["all", "first", "latest"]));
                let (arguments, at_most) = (format!("[{nth}]"), one_of(&["0", "900", "5000"]));
                let most = one_of(&["2", "100"]);
                (PUT, vec![id, time, arguments, key, keep, most, nth, at_most])
            }
            "take" => {
                let worker = one_of(&["", "7|lm1:worker"]);
                let request = one_of(&["r1", "r2", "r3"]);
                let bytes = one_of(&["1", "1000"]);
                (TAKE, vec![few, time, worker, "900".into(), request, bytes, nth, " runs".into()])
            }
            "keep" => (KEEP, vec![id, nth, time]),
            "settle" => {
                let how = one_of(&["done", "again", "busy", "back", "dead"]);
                (SETTLE, vec![id, nth, how, time, "it failed".into(), few])
            }
            "list" => {
                let state = one_of(&["waiting", "running", "dead"]);
                (LIST, vec![state, one_of(&["0", "1"]), few, one_of(&["1", "1000"])])
            }
            _ => (RETRY_OR_REMOVE, vec![one_of(&["retry", "remove"]), id, one_of(&["0", "2"])]),
        };
        eval(script, &keys, &arguments)
    });
}

#[test]
fn several_locks() {
    let all = ["{a}", "{a}q", "{a}w", "{a}f", "{a}h", "{b}", "{b}q", "{b}w", "{b}f", "{b}h"];
    let shared = ["{a}", "{a}q", "{a}h", "{b}", "{b}q", "{b}h"];
    same_data(|rng| {
        let mut one_of = |some: &[&str]| rng.choice(some.iter()).expect("some").to_string();
        let number = one_of(&["1", "2", "3"]);
        let token = format!("host/{number:0>32}");
        let ttl = one_of(&["1", "900", "60000"]);
        let (confirm, kept, fenced) =
            ("5000".to_owned(), "86400000".to_owned(), one_of(&["0", "1"]));
        let half = one_of(&["0", "5"]).parse().expect("a number");
        let one = &all[half..half + 5];
        let limit = one_of(&["1", "0", "2"]);
        match one_of(&[
            "ask", "ask", "all", "all", "release", "release", "merged", "share", "share",
            "unshare", "renew", "other", "inspect", "type",
        ])
        .as_str()
        {
            "ask" => {
                let record = format!("{ttl}|{fenced}|1|{number}|lm1:worker|1|{limit}");
                let lease = one_of(&["10000", "1"]);
                let most = one_of(&["2", "100", "0"]);
                let end = one_of(&["0", "0", "1", "9007199254740991"]);
                eval(
                    ACQUIRE,
                    one,
                    &[token, ttl, fenced, confirm, kept, limit, end, most, lease, record],
                )
            }
            "all" => {
                let other = one_of(&["1", "0", "3"]);
                let limits = format!("{limit} {other}");
                let end = one_of(&["0", "0", "1", "9007199254740991"]);
                eval(ACQUIRE_ALL, &all, &[token, ttl, fenced, confirm, kept, limits, end])
            }
            "release" => eval(RELEASE_ALL, &all, &[token, one_of(&["0", "500"]), confirm, kept]),
            "merged" => {
                let keys = ["{a}", "{a}q", "{b}", "{b}q"];
                eval(RELEASE_MERGED, &keys, &[token.clone(), token])
            }
            "share" => {
                let args = [token.clone(), ttl.clone(), limit.clone(), token, ttl, limit];
                eval(ACQUIRE_SHARED, &shared, &args)
            }
            "unshare" => eval(RELEASE_SHARED, &shared, &[token.clone(), token]),
            "renew" => match limit.as_str() {
                "0" => eval(RENEW, &[one[0], one[4]], &[token, ttl]),
                _ => eval(RENEW_ALL, &all, &[token, ttl]),
            },
            "inspect" => [
                eval(INSPECT_LOCKS, &shared, &["64".to_owned()]),
                eval(INSPECT_QUEUE, &one[..3], &[one_of(&["1", "9"])]),
            ]
            .concat(),
            "type" => match one_of(&["SET", "LPUSH", "DEL", "DEL", "DEL"]).as_str() {
                "DEL" => packed(&[b"DEL", one[0].as_bytes(), one[1].as_bytes()]),
                how => {
                    let key = one_of(&[one[0], one[1], one[3]]);
                    packed(&[b"DEL", key.as_bytes()])
                        .into_iter()
                        .chain(packed(&[how.as_bytes(), key.as_bytes(), b"7"]))
                        .collect()
                }
            },
            _ => [
                eval(RAISE_FENCE, &[one[0], one[3]], &[token.clone(), ttl.clone(), kept.clone()]),
                eval(REPAIR, &[one[0], one[3]], &[token.clone(), ttl, number.clone(), kept]),
                eval(WRITE, &["resource"], &[number, "value".to_owned()]),
                eval(RELEASE_MIGRATING, &one[..1], std::slice::from_ref(&token)),
                eval(RELEASE_MIGRATING, &[one[0], one[4]], &[token]),
                eval(
                    CHECK_RIGHTS,
                    one,
                    &["&lm1:*", "get", "publish", "pubsub|numsub", "time", "set", "nosuch"]
                        .map(str::to_owned),
                ),
            ]
            .concat(),
        }
    });
}
