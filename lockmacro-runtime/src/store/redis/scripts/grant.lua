-- The parts of a grant: put before the scripts that ask for locks.

-- The first write of a script for a token that holds nothing yet. It changes nothing. A full server
-- refuses it, and so does a replica: ZADD is checked for memory, where GETEX and ZPOPMIN are not.
local function needs_memory()
  redis.call('ZADD', KEYS[2], 'XX', 0, '')
end

local function no_fence()
  return redis.error_reply('FENCESUSEDUP the counter ' .. KEYS[4] .. ' is at 2^53')
end

-- Writes the lock. A request of the token that holds it already must not undo a renewal.
local function set_lock(token, ttl, is_held)
  if not is_held then
    redis.call('SET', KEYS[1], token, 'PX', ttl)
  elseif redis.call('PTTL', KEYS[1]) < tonumber(ttl) then
    redis.call('PEXPIRE', KEYS[1], ttl)
  end
end

