-- A grant, in two steps, as only the first can fail: put before the scripts that ask for locks.
-- `again` tells that the lock is the token's own already.

-- The fence of a grant: again the same one.
local function fence_of(again)
  return again and redis.call('GET', KEYS[4]) or next_fence()
end

-- A question that arrives late must not undo what has lengthened the lease meanwhile.
local function take(token, ttl, again)
  if not again or redis.call('PTTL', KEYS[1]) < tonumber(ttl) then
    redis.call('SET', KEYS[1], token, 'PX', ttl)
  end
end

