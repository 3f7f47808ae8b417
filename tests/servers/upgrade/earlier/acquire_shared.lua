-- Lets tokens share locks, each if nobody waits for it and it is free, or shared by fewer than the
-- token's limit. For tokens that were not sent before: it costs less than acquire.lua, which is
-- called for those that are not let in. Merges the calls of many callers.
--
-- KEYS     for each lock: the lock, its queue and its holders, see queue.lua
-- ARGV     for each lock: the token, the ttl in milliseconds, and the limit, see queue.lua
-- returns  for each lock 1 when granted, else 0; see for_each_call.lua
--
-- The first write of each branch is one that a full server refuses. The holders come before the key:
-- where a right is missing in between, no key stays that nobody holds.

-- Most dead holders that one call removes.
local DEAD_HOLDERS_AT_ONCE = 128

local calls = #KEYS / 3
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The lock that the call before this one has entered, as most calls are for one lock: its value,
-- how long it is kept, and the numbers of its holders.
local known, value, kept, count, dead

local function one(nth)
  local lock, queue, holders = unpack(KEYS, 3 * nth - 2, 3 * nth)
  local token, ttl, limit = unpack(ARGV, 3 * nth - 2, 3 * nth)
  local shared = string.sub(token, 1, -33) .. 'shared'
  ttl = tonumber(ttl)
  if lock ~= known then
    known = nil
    local keys = redis.call('EXISTS', lock, queue, holders)
    if keys == 0 then
      redis.call('ZADD', holders, now + ttl, token)
      redis.call('PEXPIRE', holders, ttl)
      redis.call('SET', lock, shared, 'PX', ttl)
      known, value, kept, count, dead = lock, shared, ttl, 1, 0
      return 1
    end
    -- Two without a queue: a lock, and its holders.
    value = keys == 2 and redis.call('GET', lock)
    if not value or string.sub(value, -7) ~= '/shared' then
      return 0
    end
    kept = redis.call('PTTL', lock)
    count = redis.call('ZCOUNT', holders, string.format('(%.0f', now), '+inf')
    dead = redis.call('ZCARD', holders) - count
  end
  if count == 0 or limit ~= '0' and count >= tonumber(limit) then
    return 0
  end
  if redis.call('ZADD', holders, 'NX', now + ttl, token) == 0 then
    return 0
  end
  known, count = lock, count + 1
  -- While others hold the lock, the set does not expire.
  if dead >= count then
    redis.call('ZPOPMIN', holders, math.min(dead, DEAD_HOLDERS_AT_ONCE))
    dead = 0
  end
  if value ~= shared or kept < ttl then
    value, kept = shared, math.max(kept, ttl)
    redis.call('SET', lock, value, 'PX', kept)
    redis.call('PEXPIRE', holders, kept)
  end
  return 1
end

