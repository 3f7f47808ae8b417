-- A grant, in two steps, of which only the first can fail: put before the scripts that ask for
-- locks. `is_held` says that the token holds the lock already.

-- The first write of a script for a token that holds nothing yet. It changes nothing. A full server
-- refuses it, and so does a replica: ZADD is checked for memory, where GETEX and ZPOPMIN are not.
local function needs_memory()
  redis.call('ZADD', KEYS[2], 'XX', 0, '')
end

-- The fences of a grant; the last of them again for the same token. nil when the fences are used up.
local function fences_of(is_held, fence_ttl)
  return is_held and redis.call('GET', KEYS[4]) or next_fences(fence_ttl)
end

local function no_fence()
  return redis.error_reply('FENCESUSEDUP the counter ' .. KEYS[4] .. ' is at 2^53')
end

-- A request that arrives late must not undo a renewal.
local function set_lock(token, ttl, is_held)
  if not is_held then
    redis.call('SET', KEYS[1], token, 'PX', ttl)
  elseif redis.call('PTTL', KEYS[1]) < tonumber(ttl) then
    redis.call('PEXPIRE', KEYS[1], ttl)
  end
end

