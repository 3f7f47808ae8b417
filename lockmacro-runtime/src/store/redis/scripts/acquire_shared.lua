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

local function one(nth)
  local lock, queue, holders = unpack(KEYS, 3 * nth - 2, 3 * nth)
  local token, ttl, limit = unpack(ARGV, 3 * nth - 2, 3 * nth)
  if redis.call('ZCARD', queue) > 0 then
    return 0
  end
  local value = redis.call('GET', lock)
  local ends = string.format('%.0f', now + ttl)
  local shared = string.gsub(token, '[^/]+$', 'shared')
  if not value then
    redis.call('ZADD', holders, ends, token)
    if redis.call('ZCARD', holders) > 1 then
      -- Another program has deleted the lock of earlier holders.
      redis.call('DEL', holders)
      redis.call('ZADD', holders, ends, token)
    end
    redis.call('PEXPIRE', holders, ttl)
    redis.call('SET', lock, shared, 'PX', ttl)
    return 1
  end
  if string.sub(value, -7) ~= '/shared' then
    return 0
  end
  local count = redis.call('ZCOUNT', holders, string.format('(%.0f', now), '+inf')
  if count == 0 or limit ~= '0' and count >= tonumber(limit) then
    return 0
  end
  if redis.call('ZADD', holders, 'NX', ends, token) == 0 then
    return 0
  end
  -- While others hold the lock, the set does not expire.
  local dead = redis.call('ZCARD', holders) - count - 1
  if dead > count then
    redis.call('ZPOPMIN', holders, math.min(dead, DEAD_HOLDERS_AT_ONCE))
  end
  -- The key need not change for those who come together: most calls are merged.
  local left = redis.call('PTTL', lock)
  if value ~= shared or left < tonumber(ttl) then
    left = math.max(left, tonumber(ttl))
    redis.call('SET', lock, shared, 'PX', left)
    redis.call('PEXPIRE', holders, left)
  end
  return 1
end

