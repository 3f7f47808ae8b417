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
        "if held == token then\n  return grant(true)", "if held then\n  return grant(true)"),
    mutant("a lock of several that is held is granted", LEASE,
        "if held and held ~= token then", "if false then"),
    mutant("anybody's lock is renewed", LEASE,
        "if redis.call('GETEX', KEYS[1]) ~= ARGV[1] then\n  return 0\nend\nredis.call('PEXPIRE'",
        "if not redis.call('GETEX', KEYS[1]) then\n  return 0\nend\nredis.call('PEXPIRE'"),
    mutant("anybody's lock is released", LEASE,
        "local held = value == ARGV[1]", "local held = value"),
    mutant("anybody's uncontended lock is released", LEASE,
        "if redis.call('GETEX', lock) ~= token then", "if not redis.call('GETEX', lock) then"),
    mutant("a renewal does nothing", LEASE,
        "redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))",
        ""),
    mutant("a fence is given again", "fences",
        "local last = math.max(before + 1, now_us())", "local last = math.max(before, now_us())"),
    mutant("fences begin below the last", "fences",
        "math.max(before + 1, last - FENCES_AT_ONCE + 1)", "last - FENCES_AT_ONCE + 1"),
    mutant("fences are not raised", "fences",
        "if (tonumber(redis.call('GET', KEYS[2])) or 0) < tonumber(ARGV[2]) then", "if false then"),
    mutant("a release forgets the queue", "idle",
        "if held and ARGV[2] == '0' and redis.call('ZCARD', KEYS[2]) == 0 then",
        "if held and ARGV[2] == '0' then"),
    mutant("an uncontended release forgets the queue", "idle",
        "if redis.call('ZCARD', queue) > 0 then", "if false then"),
    mutant("a hand-off is not pushed", "idle",
        "        publish(channel, push_of(id, fences, px))\n        return head", "        return head"),
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
        "held = promote(confirm_window, fence_ttl, token)",
        "held = max_queue > 0 and promote(confirm_window, fence_ttl, token) or nil"),
    mutant("a min_hold is not kept", "min_hold",
        "if ARGV[2] == '0' then\n  local head", "if true then\n  local head"),
    mutant("a queue has no ttl", "left",
        "redis.call('PEXPIRE', KEYS[2], queue_ttl)", ""),
    mutant("the last fence has no ttl", "left",
        "redis.call('SET', KEYS[4], micros(last), 'PX', fence_ttl)",
        "redis.call('SET', KEYS[4], micros(last))"),
    mutant("a hand-off has no ttl", "stuck",
        "redis.call('SET', KEYS[1], head, 'PX', px)", "redis.call('SET', KEYS[1], head)"),
];
