//! The mutants of the scripts.

use super::{LEASE, Mutant};

const fn mutant(
    name: &'static str,
    oracle: &'static str,
    old: &'static str,
    new: &'static str,
) -> Mutant {
    Mutant { name, oracle, file: "", old, new }
}

#[rustfmt::skip]
pub(crate) const MUTANTS: &[Mutant] = &[
    mutant("a held lock is granted", LEASE,
        "if is_holder then\n", "if held then\n"),
    mutant("a lock of several that is held is granted", LEASE,
        "if first ~= nil or not may_enter(held, limit) then", "if false then"),
    mutant("anybody's lock is renewed", LEASE,
        "if value == ARGV[1] then\n  extend", "if value then\n  extend"),
    mutant("anybody's lock is released", LEASE,
        "local held = value == ARGV[1]", "local held = value"),
    mutant("anybody's uncontended lock is released", LEASE,
        "if redis.call('GETEX', lock) ~= token then", "if not redis.call('GETEX', lock) then"),
    mutant("a renewal does nothing", LEASE,
        "redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), tonumber(ARGV[2])))", ""),
    mutant("a fence is given again", "fences",
        "local last = math.max(before + 1, now_us())", "local last = math.max(before, now_us())"),
    mutant("fences begin below the last", "fences",
        "math.max(before + 1, last - FENCES_AT_ONCE + 1)", "last - FENCES_AT_ONCE + 1"),
    mutant("fences are not raised", "fences",
        "if (tonumber(redis.call('GET', KEYS[2])) or 0) < tonumber(ARGV[2]) then", "if false then"),
    mutant("a release forgets the queue", "idle",
        "if (held or shares) and ARGV[2] == '0' and redis.call('ZCARD', KEYS[2]) == 0 then",
        "if (held or shares) and ARGV[2] == '0' then"),
    mutant("an uncontended release forgets the queue", "idle",
        "if redis.call('ZCARD', queue) > 0 then", "if false then"),
    mutant("a hand-off is not pushed", "idle",
        "      publish(channel, push_of(id, fences, px))\n", ""),
    mutant("a waiter does not join the queue", "idle",
        "redis.call('ZADD', KEYS[2], (tonumber(last) or 0) + 1, token)", ""),
    mutant("a waiter that leaves stays in the queue", "idle",
        "  redis.call('ZREM', KEYS[2], token)\n  redis.call('HDEL', KEYS[3], token)", ""),
    mutant("a waiter joins before the others", "model",
        "redis.call('ZADD', KEYS[2], (tonumber(last) or 0) + 1, token)",
        "redis.call('ZADD', KEYS[2], -now_us(), token)"),
    mutant("the last waiter is the first to be served", "model",
        "redis.call('ZPOPMIN', KEYS[2])", "redis.call('ZPOPMAX', KEYS[2])"),
    mutant("a caller that does not wait overtakes the queue", "model",
        "if first == token or", "if max_queue == 0 or first == token or"),
    mutant("a min_hold is not kept", "min_hold",
        "if shares or ARGV[2] == '0' then\n  local first", "if true then\n  local first"),
    mutant("a queue has no ttl", "left",
        "redis.call('PEXPIRE', KEYS[2], queue_ttl)", ""),
    mutant("the last fence has no ttl", "left",
        "redis.call('SET', KEYS[4], micros(last), 'PX', fence_ttl)",
        "redis.call('SET', KEYS[4], micros(last))"),
    mutant("a hand-off has no ttl", "stuck",
        "redis.call('SET', KEYS[1], token, 'PX', px)", "redis.call('SET', KEYS[1], token)"),
    // Deferred calls.
    mutant("a call that was taken is still due", "deferred",
        "  leave(id)\n  if not arguments", "  if not arguments"),
    mutant("a call that is done is run again", "deferred",
        "  forget(id)\nelseif how == 'dead' then", "  wait(id, 0)\nelseif how == 'dead' then"),
    mutant("the call of a worker that died is forgotten", "deferred",
        "  if not is_abandoned(id) then\n    wait(id, 0)", "  if not is_abandoned(id) then\n    forget(id)"),
];
