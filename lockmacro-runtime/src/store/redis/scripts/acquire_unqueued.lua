-- The beginning of acquire.lua for a request that may share the lock, with its KEYS and ARGV: mostly
-- nobody waits, and then no more has to be done, nor defined.
--
-- The first write of each branch is one that a full server refuses. The holders come before the key:
-- where a right is missing in between, no key stays that nobody holds.

-- Most dead holders that one call removes.
local DEAD_HOLDERS_AT_ONCE = 128

if ARGV[7] ~= '1' and ARGV[3] == '0' and redis.call('ZCARD', KEYS[2]) == 0 then
  local value, time = redis.call('GET', KEYS[1]), redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local ends = string.format('%.0f', now + ARGV[2])
  local shared = string.gsub(ARGV[1], '[^/]+$', 'shared')
  if not value then
    redis.call('ZADD', KEYS[5], ends, ARGV[1])
    if redis.call('ZCARD', KEYS[5]) > 1 then
      -- Another program has deleted the lock of earlier holders.
      redis.call('DEL', KEYS[5])
      redis.call('ZADD', KEYS[5], ends, ARGV[1])
    end
    redis.call('PEXPIRE', KEYS[5], ARGV[2])
    redis.call('SET', KEYS[1], shared, 'PX', ARGV[2])
    return 1
  end
  if string.sub(value, -7) == '/shared' and not redis.call('ZSCORE', KEYS[5], ARGV[1]) then
    local count = redis.call('ZCOUNT', KEYS[5], string.format('(%.0f', now), '+inf')
    if count > 0 and (ARGV[7] == '0' or count < tonumber(ARGV[7])) then
      redis.call('ZADD', KEYS[5], ends, ARGV[1])
      -- While others hold the lock, the set does not expire.
      local dead = redis.call('ZCARD', KEYS[5]) - count - 1
      if dead > count then
        redis.call('ZPOPMIN', KEYS[5], math.min(dead, DEAD_HOLDERS_AT_ONCE))
      end
      local left = math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2]))
      redis.call('SET', KEYS[1], shared, 'PX', left)
      redis.call('PEXPIRE', KEYS[5], left)
      return 1
    end
  end
end

