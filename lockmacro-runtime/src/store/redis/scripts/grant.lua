-- A grant, in two steps, as only the first can fail: put before the scripts that ask for locks.
-- `again` tells that the lock is the token's own already.

-- The first write of a script for who has nothing yet. It changes nothing; a full server refuses
-- it, and so does a replica: ZADD is checked for memory, where GETEX and ZPOPMIN are not.
local function needs_memory()
  redis.call('ZADD', KEYS[2], 'XX', 0, '')
end

-- The fence of a grant: again the same one. nil when there is none any more.
local function fence_of(again, kept)
  return again and redis.call('GET', KEYS[4]) or next_fence(kept)
end

local function no_fence()
  return redis.error_reply('FENCESUSEDUP the counter ' .. KEYS[4] .. ' is at 2^53')
end

-- A question that arrives late must not undo what has lengthened the lease meanwhile.
local function take(token, ttl, again)
  if not again then
    redis.call('SET', KEYS[1], token, 'PX', ttl)
  elseif redis.call('PTTL', KEYS[1]) < tonumber(ttl) then
    redis.call('PEXPIRE', KEYS[1], ttl)
  end
end

