-- The parts of a grant: put before the scripts that ask for locks.

-- The first write of a script for a token that holds nothing yet. It changes nothing. A full server
-- refuses it, and so does a replica: ZADD is checked for memory, where GETEX and ZPOPMIN are not.
local function needs_memory()
  redis.call('ZADD', KEYS[2], 'XX', 0, '')
end

local function no_fence()
  return redis.error_reply('FENCESUSEDUP the counter ' .. KEYS[4] .. ' is at 2^53')
end

-- Whether the token holds a lock with this value.
local function holds(token, held)
  if not is_shared(held) then
    return held == token
  end
  local ends = redis.call('ZSCORE', KEYS[5], token)
  return ends and tonumber(ends) > now_ms()
end

-- Lengthens the lease of a token that holds the lock. Another request must not undo a renewal.
local function extend(token, ttl, held)
  if is_shared(held) then
    local ends = math.max(tonumber(redis.call('ZSCORE', KEYS[5], token)), now_ms() + ttl)
    redis.call('ZADD', KEYS[5], micros(ends), token)
    keep_for_the_last()
  elseif redis.call('PTTL', KEYS[1]) < tonumber(ttl) then
    redis.call('PEXPIRE', KEYS[1], ttl)
  end
end

-- How long a request of this limit has to wait at most, if nobody renews, in milliseconds; -1 when
-- the lock does not expire.
local function time_left(held, limit)
  if is_shared(held) and limit > 1 then
    local first = redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')[2]
    if first then
      return math.max(first - now_ms(), 0)
    end
  end
  return redis.call('PTTL', KEYS[1])
end

