//! Mistakes that the schedules must find, each by the judge of the invariant that it breaks.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::oracles::Invariant::{
    self, Ends, Fenced, GoesOn, Idempotent, InOrder, Modelled, Once, Owned, Paired,
};
use crate::real::Real;
use crate::schedule::{Stop, run};
use crate::scripts::File::{
    self, Acquire, Queue, Release, ReleaseUncontended, ReleaseUnqueued, Renew,
};
use crate::scripts::Scripts;
use crate::simulated::Simulated;
use crate::store::{Connected, Store};

/// The number of schedules in which each mutant must be found.
const WITHIN: u64 = 400;
const WORKERS: usize = 4;

/// The change in words, the invariant that it breaks, the file, a passage of the file, and the
/// replacement of the passage.
type Mutant = (&'static str, Invariant, File, &'static str, &'static str);

const MUTANTS: &[Mutant] = &[
    ("a release without the compare", Owned, ReleaseUnqueued, "value == ARGV[1]", "value"),
    ("a release without the compare", Modelled, ReleaseUnqueued, "value == ARGV[1]", "value"),
    ("a hand-off to the last waiter", Modelled, Queue, "'ZPOPMIN'", "'ZPOPMAX'"),
    ("a release without a hand-off", Modelled, Release, "promote(rest, ARGV[3], ARGV[4])", "nil"),
    ("a release that stays in the queue", Modelled, Release, "  leave(ARGV[1])\n", ""),
    (
        "fences that do not rise",
        Modelled,
        Queue,
        "last = math.max(before + 1,",
        "last = math.max(before,",
    ),
    ("a release that leaves the lock", Once, Release, "redis.call('DEL', KEYS[1])\n", "\n"),
    (
        "an unqueued release that leaves the lock",
        Once,
        ReleaseUnqueued,
        "redis.call('DEL', KEYS[1])\n",
        "\n",
    ),
    (
        "a release that overlooks the waiters",
        GoesOn,
        ReleaseUnqueued,
        " and redis.call('ZCARD', KEYS[2]) == 0",
        "",
    ),
    (
        "a lock to be kept that is deleted when nobody waits",
        Owned,
        ReleaseUnqueued,
        " and ARGV[2] == '0'",
        "",
    ),
    (
        "an uncontended release without the compare",
        Owned,
        ReleaseUncontended,
        "redis.call('GETEX', lock) ~= token",
        "redis.call('GETEX', lock) == ''",
    ),
    (
        "an uncontended release that leaves the lock",
        Once,
        ReleaseUncontended,
        "redis.call('DEL', lock)",
        "",
    ),
    (
        "an uncontended release that overlooks the waiters",
        GoesOn,
        ReleaseUncontended,
        "redis.call('ZCARD', queue) > 0",
        "false",
    ),
    (
        "an uncontended release that claims to have released",
        Once,
        ReleaseUncontended,
        "return 2",
        "return 1",
    ),
    ("a release without a hand-off", GoesOn, Release, "promote(rest, ARGV[3], ARGV[4])", "nil"),
    ("a release that stays in the queue", Once, Release, "  leave(ARGV[1])\n", ""),
    ("a release that keeps the token", Owned, Release, "placeholder, 'PX'", "ARGV[1], 'PX'"),
    (
        "a lock to be kept that is handed off",
        Owned,
        Release,
        "if shares or ARGV[2] == '0' then",
        "do",
    ),
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
    ("leaving without the queue", Paired, Queue, "redis.call('ZREM', KEYS[2], token)", ""),
    (
        "a hand-off to a lapsed waiter",
        Once,
        Queue,
        "lives = deadline and tonumber(deadline) * 1000 > now_us()",
        "lives = deadline",
    ),
    (
        "a hand-off to a waiter without a subscription",
        Once,
        Queue,
        "is_reachable = lives and (head == caller or probe == '0' or has_subscribers(channel))",
        "is_reachable = lives",
    ),
    (
        "a probe of a waiter that never subscribed",
        InOrder,
        Queue,
        "probe == '0' or has_subscribers(channel)",
        "has_subscribers(channel)",
    ),
    (
        "a refused probe taken for no subscriber",
        InOrder,
        Queue,
        "type(listeners) ~= 'number' or listeners > 0",
        "type(listeners) == 'number' and listeners > 0",
    ),
    (
        "two waiters taken out of the queue",
        InOrder,
        Queue,
        "redis.call('HDEL', KEYS[3], head)\n",
        "redis.call('HDEL', KEYS[3], head) leave(redis.call('ZRANGE', KEYS[2], 0, 0)[1] or '')\n",
    ),
    ("one dead waiter at once", GoesOn, Queue, "DEAD_AT_ONCE = 128", "DEAD_AT_ONCE = 1"),
    (
        "a push to the caller, which gets the reply",
        GoesOn,
        Queue,
        "if head == caller then",
        "if false then",
    ),
    ("a kept lock without a push", GoesOn, Release, "push_to_head()\nreturn 1", "return 1"),
    (
        "a kept lock that is pushed as a grant",
        GoesOn,
        Queue,
        "    if id then\n      publish(channel, push_of(id, '0', 0))",
        "    if id then\n      publish(channel, push_of(id, '0', 5))",
    ),
    (
        "a hand-off that is not pushed",
        GoesOn,
        Queue,
        "publish(channel, push_of(id, fences, px))",
        "",
    ),
    ("a hand-off to the last waiter", InOrder, Queue, "'ZPOPMIN'", "'ZPOPMAX'"),
    ("a grant without a ttl", Ends, Queue, "token, 'PX', px)", "token)"),
    (
        "a hand-off for the whole ttl",
        GoesOn,
        Queue,
        "math.min(tonumber(ttl), tonumber(confirm_window))",
        "tonumber(ttl)",
    ),
    ("a push with another id", GoesOn, Queue, "id .. '|' .. fences", "'0|' .. fences"),
    (
        "a hand-off of the last fence",
        Fenced,
        Queue,
        "fences = next_fences(fence_ttl)",
        "fences = '7'",
    ),
    ("fences that are counted", Fenced, Queue, "math.max(before + 1, now_us())", "before + 1"),
    ("fences by the clock alone", Fenced, Queue, "math.max(before + 1, now_us())", "now_us()"),
    (
        "fences that do not rise",
        Fenced,
        Queue,
        "last = math.max(before + 1,",
        "last = math.max(before,",
    ),
    (
        "a block that begins with fences of before",
        Fenced,
        Queue,
        "math.max(before + 1, last - FENCES_AT_ONCE + 1)",
        "last - FENCES_AT_ONCE + 1",
    ),
    ("a block after a forgotten fence", Fenced, Queue, "before > 0 and math.max", "math.max"),
    ("a fence without a ttl", Ends, Queue, "micros(last), 'PX', fence_ttl)", "micros(last))"),
    ("a fence that is not kept", Fenced, Queue, "'PX', fence_ttl)", "'PX', 60000)"),
    (
        "a queue in reverse order",
        InOrder,
        Acquire,
        "(tonumber(last) or 0) + 1",
        "-redis.call('ZCARD', KEYS[2])",
    ),
    (
        "a refreshed waiter that moves to the end",
        InOrder,
        Acquire,
        "if not rank then",
        "if not rank or redis.call('ZCARD', KEYS[2]) < max_queue then",
    ),
    (
        "another ticket for a repeated request",
        Idempotent,
        Acquire,
        "if not rank then",
        "if not rank or redis.call('ZCARD', KEYS[2]) < max_queue then",
    ),
    ("a record that is not refreshed", InOrder, Acquire, "'HSET', KEYS[3]", "'HSETNX', KEYS[3]"),
    (
        "a waiter lease that is too short",
        Ends,
        Acquire,
        "now_ms() + ARGV[8])",
        "now_ms() + ARGV[8] / 1000)",
    ),
    ("a queue without a ttl", Ends, Acquire, "redis.call('PEXPIRE', KEYS[2], queue_ttl)", ""),
    ("records without a ttl", Ends, Acquire, "redis.call('PEXPIRE', KEYS[3], queue_ttl)", ""),
    ("a queue whose ttl is too short", Ends, Acquire, "ARGV[8] * 3 / 2", "ARGV[8] / 4"),
    ("a queue whose ttl is too long", Ends, Acquire, "ARGV[8] * 3 / 2", "ARGV[8] * 4"),
    ("a queue without a bound", Ends, Acquire, "rank >= max_queue then", "rank < 0 then"),
    ("a bound that is too low", GoesOn, Acquire, ">= max_queue then", ">= max_queue - 1 then"),
    (
        "a full server that grants",
        Owned,
        Acquire,
        "redis.call('ZADD', KEYS[2], 'XX', 0, '')",
        "redis.call('ZREM', KEYS[2], '')",
    ),
    (
        "a full server that refuses holders and waiters",
        Owned,
        Acquire,
        "is_holder or max_queue > 0 and redis.call('ZRANK', KEYS[2], token) then",
        "false then",
    ),
    (
        "a full server that refuses waiters",
        Owned,
        Acquire,
        " or max_queue > 0 and redis.call('ZRANK', KEYS[2], token) then",
        " then",
    ),
    (
        "a head that leaves without a push to the next one",
        GoesOn,
        Release,
        "if was_head and not",
        "if false and not",
    ),
    (
        "a push to the head whichever waiter leaves",
        GoesOn,
        Release,
        "if was_head and not (value and",
        "if true or (value and",
    ),
    ("a dead head beside foreign clients", GoesOn, Acquire, "    clear_dead_heads()\n", ""),
    (
        "a live head that is taken for dead",
        InOrder,
        Acquire,
        "head == token or lives and",
        "head == token or not lives and",
    ),
    (
        "too many dead waiters, and no push to the head",
        GoesOn,
        Release,
        "if first == false or first and keeps then",
        "if first and keeps then",
    ),
    (
        "a hand-off to a waiter that stays in the queue",
        Paired,
        Queue,
        "redis.call('ZPOPMIN', KEYS[2])[1]",
        "redis.call('ZRANGE', KEYS[2], 0, 0)[1]",
    ),
    ("a hand-off whose record stays", Paired, Queue, "    redis.call('HDEL', KEYS[3], head)\n", ""),
    ("a direct grant over a held lock", Owned, Acquire, "if is_holder then\n", "if held then\n"),
    (
        "an own lock that is reported as contended",
        Idempotent,
        Acquire,
        "if is_holder then\n",
        "if is_holder and max_queue < 0 then\n",
    ),
    (
        "the last fence again for a repeated grant",
        Fenced,
        Acquire,
        "fenced == '1' and next_fences(fence_ttl) or 1",
        "fenced == '1' and (holds(token, redis.call('GET', KEYS[1])) and redis.call('GET', KEYS[4]) or next_fences(fence_ttl)) or 1",
    ),
    (
        "an attempt that overtakes the queue",
        InOrder,
        Acquire,
        "if first == token or",
        "if max_queue == 0 or first == token or",
    ),
    (
        "an attempt that overtakes the waiters behind many dead ones",
        InOrder,
        Acquire,
        "first == nil and may_enter",
        "not held and may_enter",
    ),
    (
        "a free lock that is granted to nobody",
        GoesOn,
        Acquire,
        "first, held = promote(held, confirm_window, fence_ttl, token)",
        "",
    ),
    (
        "a renewal by SET",
        Owned,
        Renew,
        "local value, holders = redis.call('GETEX', KEYS[1]), KEYS[5] or KEYS[2]",
        "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) local value, holders = ARGV[1]",
    ),
    (
        "a renewal that shortens",
        Owned,
        Renew,
        "math.max(redis.call('PTTL', key), tonumber(ARGV[2]))",
        "ARGV[2]",
    ),
    (
        "a renewal that does nothing",
        Owned,
        Renew,
        "'PEXPIRE', key, math.max(redis.call('PTTL', key), tonumber(ARGV[2])))",
        "'GET', key)",
    ),
];

#[test]
fn every_mutant_is_found_by_the_judge_of_what_it_breaks() {
    every_mutant_is_found(Real::start);
}

#[test]
fn every_mutant_is_found_on_a_simulated_server() {
    every_mutant_is_found(Simulated::alone);
}

fn every_mutant_is_found<S: Connected + 'static>(start: fn() -> S) {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut store = Store::start(start(), Scripts::real());
        let mut survivors = Vec::new();
        while let Some(&mutant) = MUTANTS.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (name, invariant, file, old, new) = mutant;
            store.load(Scripts::changed(file, old, new));
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
