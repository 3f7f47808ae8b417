//! Mistakes that the schedules must find, each by the judge of the invariant that it breaks.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::oracles::Invariant::{
    self, Ends, Fenced, GoesOn, Idempotent, InOrder, Once, Owned, Paired,
};
use crate::schedule::{Stop, run};
use crate::scripts::File::{self, Acquire, Alone, GiveBack, Queue, Release, Renew};
use crate::scripts::Scripts;
use crate::store::Store;

/// So many schedules are enough to find any of them.
const WITHIN: u64 = 400;
const WORKERS: usize = 4;

/// What it does, the invariant it breaks, the file, a passage of it, and what comes instead.
type Mutant = (&'static str, Invariant, File, &'static str, &'static str);

const MUTANTS: &[Mutant] = &[
    ("a release without the compare", Owned, Alone, "value == ARGV[1]", "value"),
    ("a release that leaves the lock", Once, Release, "redis.call('DEL', KEYS[1])\n", "\n"),
    ("a release alone that leaves the lock", Once, Alone, "redis.call('DEL', KEYS[1])\n", "\n"),
    (
        "a release that overlooks who waits",
        GoesOn,
        Alone,
        " and redis.call('ZCARD', KEYS[2]) == 0",
        "",
    ),
    ("a kept lock that is let go when alone", Owned, Alone, " and ARGV[2] == '0'", ""),
    (
        "a lock given back without the compare",
        Owned,
        GiveBack,
        "redis.call('GETEX', lock) ~= token",
        "redis.call('GETEX', lock) == ''",
    ),
    ("a lock given back that stays", Once, GiveBack, "redis.call('DEL', lock)", ""),
    ("a lock given back to nobody", GoesOn, GiveBack, "redis.call('ZCARD', line) > 0", "false"),
    ("a lock that is not given back for who waits", Once, GiveBack, "return 2", "return 1"),
    (
        "a release without a hand-off",
        GoesOn,
        Release,
        "promote(ARGV[3], ARGV[4], nil, ARGV[5])",
        "nil",
    ),
    ("a release that stays in line", Once, Release, "  leave(ARGV[1])\n", ""),
    ("a release that keeps the token", Owned, Release, "kept, 'PX'", "ARGV[1], 'PX'"),
    ("a kept lock that is handed over", Owned, Release, "if ARGV[2] == '0' then", "do"),
    (
        "a lock that is kept under another name",
        Owned,
        Release,
        "string.rep('0', 32)",
        "string.rep('0', 31)",
    ),
    (
        "a cancel that deletes the lock",
        Owned,
        Release,
        "return 0",
        "redis.call('DEL', KEYS[1]) return 0",
    ),
    ("leaving without the record", Paired, Queue, "redis.call('HDEL', KEYS[3], token)", ""),
    ("leaving without the line", Paired, Queue, "redis.call('ZREM', KEYS[2], token)", ""),
    (
        "a hand-off to who has lapsed",
        Once,
        Queue,
        "if deadline and tonumber(deadline) * 1000 > now_us() then",
        "if deadline then",
    ),
    (
        "a hand-off to who cannot hear",
        Once,
        Queue,
        "channel == near or probe == '0' or is_heard(channel)",
        "true",
    ),
    (
        "a probe of who hears nothing anyway",
        InOrder,
        Queue,
        "probe == '0' or is_heard(channel)",
        "is_heard(channel)",
    ),
    (
        "silence and a refusal taken for the same",
        InOrder,
        Queue,
        "type(listeners) ~= 'number' or listeners > 0",
        "type(listeners) == 'number' and listeners > 0",
    ),
    (
        "two taken out of the line",
        InOrder,
        Queue,
        "redis.call('HDEL', KEYS[3], head)\n",
        "redis.call('HDEL', KEYS[3], head) leave(redis.call('ZRANGE', KEYS[2], 0, 0)[1] or '')\n",
    ),
    ("one dead waiter at once", GoesOn, Queue, "DEAD_AT_ONCE = 128", "DEAD_AT_ONCE = 1"),
    ("a message to who is answered", GoesOn, Queue, "if head == caller then", "if false then"),
    ("a kept lock that nobody is told of", GoesOn, Release, "tell_head()\nreturn 1", "return 1"),
    (
        "a kept lock that is told as a grant",
        GoesOn,
        Queue,
        "    if id then\n      tell(channel, word_for(id, '0', 0))",
        "    if id then\n      tell(channel, word_for(id, '0', 5))",
    ),
    (
        "a hand-off that the caller alone is told of",
        GoesOn,
        Queue,
        "if channel == near then\n          return",
        "do\n          return",
    ),
    ("a hand-off that nobody is told of", GoesOn, Queue, "return head, word", "return head"),
    ("a word that is not passed on", GoesOn, Release, "return word or 1", "return 1"),
    ("a hand-off to the last", InOrder, Queue, "'ZPOPMIN'", "'ZPOPMAX'"),
    ("a hand-off without an end", Ends, Queue, "head, 'PX', px)", "head)"),
    (
        "a hand-off for the whole ttl",
        GoesOn,
        Queue,
        "tonumber(ttl) < tonumber(claim) and ttl or claim",
        "ttl",
    ),
    ("a hand-off to another number", GoesOn, Queue, "id .. '|' .. fence", "'0|' .. fence"),
    ("a hand-off of the last fence", Fenced, Queue, "fence = next_fence(kept)", "fence = '7'"),
    ("fences that are counted", Fenced, Queue, "math.max(last + 1, now_us())", "last + 1"),
    ("fences by the clock alone", Fenced, Queue, "math.max(last + 1, now_us())", "now_us()"),
    ("fences that stand still", Fenced, Queue, "math.max(last + 1,", "math.max(last,"),
    ("a fence without an end", Ends, Queue, "fence, 'PX', kept)", "fence)"),
    ("a fence that is not kept", Fenced, Queue, "'PX', kept)", "'PX', 60000)"),
    (
        "a line that begins at its end",
        InOrder,
        Acquire,
        "(tonumber(last) or 0) + 1",
        "-redis.call('ZCARD', KEYS[2])",
    ),
    (
        "a refreshed place at the end",
        InOrder,
        Acquire,
        "if not rank then",
        "if not rank or redis.call('ZCARD', KEYS[2]) < places then",
    ),
    (
        "another ticket for who asks again",
        Idempotent,
        Acquire,
        "if not rank then",
        "if not rank or redis.call('ZCARD', KEYS[2]) < places then",
    ),
    ("a place that is not refreshed", InOrder, Acquire, "'HSET', KEYS[3]", "'HSETNX', KEYS[3]"),
    ("a place for too short", Ends, Acquire, "1000) + ARGV[7])", "1000) + ARGV[7] / 1000)"),
    ("a line without an end", Ends, Acquire, "redis.call('PEXPIRE', KEYS[2], line_kept)", ""),
    ("records without an end", Ends, Acquire, "redis.call('PEXPIRE', KEYS[3], line_kept)", ""),
    ("a line that ends too soon", Ends, Acquire, "ARGV[7] * 3 / 2", "ARGV[7] / 4"),
    ("a line that stays for long", Ends, Acquire, "ARGV[7] * 3 / 2", "ARGV[7] * 4"),
    ("a line without a bound", Ends, Acquire, "rank >= places then", "rank < 0 then"),
    ("a bound that is too low", GoesOn, Acquire, ">= places then", ">= places - 1 then"),
    ("a direct grant without an end", Ends, Acquire, "token, 'PX', ttl)", "token)"),
    (
        "a full server that grants",
        Owned,
        Acquire,
        "redis.call('ZADD', KEYS[2], 'XX', 0, '')",
        "redis.call('ZREM', KEYS[2], '')",
    ),
    (
        "a full server that takes nobody for its own",
        Owned,
        Acquire,
        "held == token or places > 0 and redis.call('ZRANK', KEYS[2], token) then",
        "false then",
    ),
    (
        "a full server that takes places away",
        Owned,
        Acquire,
        " or places > 0 and redis.call('ZRANK', KEYS[2], token) then",
        " then",
    ),
    (
        "a head that leaves and tells nobody",
        GoesOn,
        Release,
        "if was_head and not",
        "if false and not",
    ),
    (
        "who leaves, the head or not, and tells the head",
        GoesOn,
        Release,
        "if was_head and not (value and",
        "if true or (value and",
    ),
    ("a dead head beside foreign clients", GoesOn, Acquire, "    clear_dead_heads()\n", ""),
    (
        "a living head that is taken for dead",
        InOrder,
        Acquire,
        "head == token or lives and",
        "head == token or not lives and",
    ),
    (
        "too many dead, and nobody told to ask",
        GoesOn,
        Release,
        "if head == false then",
        "if false then",
    ),
    (
        "a hand-off to who stays in line",
        Paired,
        Queue,
        "redis.call('ZPOPMIN', KEYS[2])[1]",
        "redis.call('ZRANGE', KEYS[2], 0, 0)[1]",
    ),
    ("a hand-off whose record stays", Paired, Queue, "    redis.call('HDEL', KEYS[3], head)\n", ""),
    (
        "a direct grant over a held lock",
        Owned,
        Acquire,
        "if held == token then\n  return",
        "if held then\n  return",
    ),
    (
        "an own lock that is busy",
        Idempotent,
        Acquire,
        "if held == token then\n  return",
        "if held == token and places < 0 then\n  return",
    ),
    (
        "a new fence for an old grant",
        Idempotent,
        Acquire,
        "again and redis.call('GET', KEYS[4]) or next_fence(kept)",
        "next_fence(kept)",
    ),
    (
        "an attempt that overtakes the line",
        InOrder,
        Acquire,
        "held = promote(claim, kept, token)",
        "held = places > 0 and promote(claim, kept, token) or token",
    ),
    (
        "an attempt that overtakes who comes after many dead",
        InOrder,
        Acquire,
        "or held == nil then",
        "or not held then",
    ),
    ("a free lock that nobody is given", GoesOn, Acquire, "held = promote(claim, kept, token)", ""),
    (
        "a renewal by SET",
        Owned,
        Renew,
        "if redis.call('GETEX', KEYS[1]) ~= ARGV[1] then\n  return 0",
        "if redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) == 0 then\n  return 0",
    ),
    (
        "a renewal that shortens",
        Owned,
        Renew,
        "math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2]))",
        "ARGV[2]",
    ),
    (
        "a renewal that does nothing",
        Owned,
        Renew,
        "'PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))",
        "'GET', KEYS[1])",
    ),
];

#[test]
fn every_mutant_is_found_by_the_judge_of_what_it_breaks() {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut store = Store::start(Scripts::real());
        let mut survivors = Vec::new();
        while let Some(&mutant) = MUTANTS.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (name, invariant, file, old, new) = mutant;
            store.know(Scripts::changed(file, old, new));
            match (0..WITHIN).find(|seed| found(&mut store, invariant, *seed)) {
                Some(seed) => println!("{name}: by {invariant} in schedule {}", seed + 1),
                None => survivors.push(format!("{name}: not by {invariant}")),
            }
        }
        survivors
    };
    let survivors: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().flat_map(|t| t.join().expect("schedules that run")).collect()
    });
    assert!(survivors.is_empty(), "{}", survivors.join("\n"));
}

fn found(store: &mut Store, invariant: Invariant, seed: u64) -> bool {
    matches!(run(store, &[invariant], seed), Err(Stop::Violated { .. }))
}
