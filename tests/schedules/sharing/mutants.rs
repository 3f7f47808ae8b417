//! Mistakes in the scripts that only callers which share a lock can find.

use crate::runner::{Mutant, every_mutant_is_found};
use crate::scripts::File::{Acquire, AcquireShared, Queue, Release, ReleaseShared, Renew};
use crate::sharing::oracles::Invariant::{
    self, Answers, Ends, GoesOn, InOrder, Leases, Limits, Marked, Stays,
};
use crate::sharing::schedule::{Stop, run};
use crate::simulated::Simulated;

/// Each with the invariants of which it must break one first.
const MUTANTS: &[Mutant<&[Invariant]>] = &[
    ("one holder more than permits", &[Limits], Queue, "count < limit)", "count <= limit)"),
    (
        "one holder more than permits, where nobody waits",
        &[Limits],
        AcquireShared,
        "count >= tonumber(limit)",
        "count > tonumber(limit)",
    ),
    (
        "a shared caller beside an exclusive holder, where nobody waits",
        &[Limits, Stays],
        AcquireShared,
        "if not value or string.sub(value, -7) ~= '/shared' then",
        "if not value then",
    ),
    (
        "a shared caller that does not look at the queue",
        &[InOrder],
        AcquireShared,
        "keys == 2 and",
        "keys >= 2 and",
    ),
    (
        "holders of a deleted key that count, where nobody waits",
        &[Limits, GoesOn, Answers, Marked, InOrder],
        AcquireShared,
        "if keys == 0 then",
        "if keys == 0 or redis.call('EXISTS', lock, queue) == 0 then",
    ),
    (
        "a key that expires with the lease that began last, where nobody waits",
        &[Marked],
        AcquireShared,
        "math.max(kept, ttl)",
        "ttl",
    ),
    (
        "a key that expires with the first lease of those who come within a second",
        &[Marked],
        AcquireShared,
        "if value ~= shared or kept < ttl then",
        "if value ~= shared then",
    ),
    (
        "live holders that are removed with the dead ones",
        &[Stays],
        AcquireShared,
        "if dead >= count then\n    redis.call('ZPOPMIN', holders, math.min(dead,",
        "if dead >= 0 then\n    redis.call('ZPOPMIN', holders, math.min(dead + 1,",
    ),
    (
        "those who enter together are not counted",
        &[Limits],
        Queue,
        "counted[KEYS[5]] and counted[KEYS[5]] + new",
        "counted[KEYS[5]]",
    ),
    (
        "a holder that takes itself for the only one",
        &[Stays],
        ReleaseShared,
        "first_two[1] == token and not first_two[2]",
        "first_two[1] == token",
    ),
    (
        "a release that frees the key of the other holders, where nobody waits",
        &[Stays, Limits, Marked, Answers],
        ReleaseShared,
        "if not last or tonumber(last) <= now then",
        "if true then",
    ),
    (
        "a release that does not look at the queue",
        &[GoesOn],
        ReleaseShared,
        " or redis.call('ZCARD', queue) > 0",
        "",
    ),
    (
        "a key that outlives the last lease, where nobody waits",
        &[Marked],
        ReleaseShared,
        "elseif tonumber(last) < tonumber(ends) then",
        "elseif false then",
    ),
    ("one holder fewer than permits", &[GoesOn], Queue, "count < limit)", "count < limit - 1)"),
    (
        "an exclusive caller beside shared holders",
        &[Limits, Stays],
        Queue,
        "if limit == 1 or not is_shared(held) then",
        "limit = limit == 1 and 0 or limit if not is_shared(held) then",
    ),
    (
        "a shared caller beside an exclusive holder",
        &[Limits, Stays],
        Queue,
        "if limit == 1 or not is_shared(held) then",
        "if limit == 1 then",
    ),
    (
        "leases that are over count",
        &[GoesOn],
        Queue,
        "  redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', micros(now_ms()))\n",
        "",
    ),
    (
        "a shared caller that overtakes an exclusive waiter",
        &[InOrder],
        Acquire,
        "or first == nil and may_enter",
        "or may_enter",
    ),
    (
        "only the first shared waiter is let in",
        &[GoesOn],
        Queue,
        "      if limit == 1 then\n        return true, held\n      end\n",
        "      do return true, held end\n",
    ),
    (
        "those behind a shared caller are not let in",
        &[GoesOn],
        Acquire,
        "      if promote(held, confirm_window, fence_ttl) == false then",
        "      if false then",
    ),
    (
        "a released permit that nobody is told of",
        &[GoesOn],
        Release,
        "if shares or ARGV[2] == '0' then\n  local first, stays = promote(rest, ARGV[3], ARGV[4])",
        "if shares or ARGV[2] == '0' then\n  local first, stays = nil, rest",
    ),
    ("a release that removes the other holders", &[Stays], Release, "    rest = value\n", ""),
    (
        "a release that stays among the holders",
        &[Answers],
        Release,
        "  redis.call('ZREM', KEYS[5], ARGV[1])\n",
        "",
    ),
    (
        "a key that expires with the lease that began last",
        &[Marked],
        Queue,
        "redis.call('SET', KEYS[1], value, 'PX', keep_holders())",
        "redis.call('SET', KEYS[1], value, 'PX', px)",
    ),
    (
        "a key that does not expire",
        &[Marked, Ends],
        Queue,
        "redis.call('SET', KEYS[1], value, 'PX', keep_holders())",
        "redis.call('SET', KEYS[1], value)",
    ),
    (
        "those behind a head that leaves are not let in",
        &[GoesOn],
        Release,
        "if not value or was_head and is_shared(value) then",
        "if not value then",
    ),
    ("a key that outlives the last lease", &[Marked], Release, "    keep_for_the_last()\n", ""),
    (
        "holders that do not expire",
        &[Ends, Marked],
        Queue,
        "  redis.call('PEXPIRE', KEYS[5], left)\n",
        "",
    ),
    (
        "holders of a deleted key that count",
        &[Limits, GoesOn, Answers, Marked, InOrder],
        Queue,
        "    redis.call('DEL', KEYS[5])\n",
        "",
    ),
    (
        "a hand-off of a permit for the whole ttl",
        &[Leases],
        Queue,
        "math.min(tonumber(ttl), tonumber(confirm_window))",
        "tonumber(ttl)",
    ),
    (
        "a renewal of whoever asks",
        &[Answers, Limits],
        Renew,
        "if not ends or tonumber(ends) <= now then",
        "ends = ends or 0\nif false then",
    ),
    (
        "a renewal of the key alone",
        &[Answers, Marked],
        Renew,
        "redis.call('ZADD', holders, string.format('%.0f', math.max(ends, now + ARGV[2])), ARGV[1])",
        "",
    ),
    (
        "a renewal that shortens",
        &[Marked, Stays],
        Renew,
        "math.max(ends, now + ARGV[2])",
        "now + ARGV[2]",
    ),
];

#[test]
fn every_mutant_is_found_by_callers_that_share_a_lock() {
    every_mutant_is_found(Simulated::alone, MUTANTS, |store, invariants, seed| {
        let stop = run(store, seed).err();
        matches!(stop, Some(Stop::Violated { invariant, .. }) if invariants.contains(&invariant))
    });
}
