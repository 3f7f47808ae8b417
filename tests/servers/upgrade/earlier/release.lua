-- Releases a lock if the token still holds it, and hands it off to the first waiter, also if the
-- lock is free already; removes the token from the queue if it waits. Idempotent.
--
-- ARGV[1]  the token
-- ARGV[2]  the time for which the key stays nevertheless, in milliseconds; 0 for none
-- ARGV[3]  the confirm window in milliseconds
-- ARGV[4]  the retention of the last fence in milliseconds
-- returns  1 when the token held the lock, else 0

-- The end of the token's lease, if it shares the lock.
local shares = type(value) == 'string'
  and is_shared(value)
  and redis.call('ZSCORE', KEYS[5], ARGV[1])
if not held and not shares then
  local was_head = redis.call('ZRANK', KEYS[2], ARGV[1]) == 0
  -- Also where the key holds no string, and could not be read.
  leave(ARGV[1])
  if type(value) == 'table' then
    return value
  end
  if not value then
    -- A request that was denied a command may have left holders without a key.
    redis.call('DEL', KEYS[5])
  end
  -- A lease that has ended told nobody. And those behind the head may share the lock.
  if not value or was_head and is_shared(value) then
    if promote(value, ARGV[3], ARGV[4]) == false then
      push_to_head()
    end
  elseif was_head and not is_ours(value) then
    -- The release of another program sends no push: the head of the queue then asks often, and has
    -- to learn that it is the head.
    push_to_head()
  end
  return 0
end
-- A late request may have brought the lock to a token that waits.
leave(ARGV[1])
local rest
local keeps = ARGV[2] ~= '0'
if shares then
  redis.call('ZREM', KEYS[5], ARGV[1])
  keeps = keeps and tonumber(shares) > now_ms()
  if keeps then
    -- Counts as a holder, and nobody's token: a renewal in flight finds nothing to renew.
    redis.call('ZADD', KEYS[5], micros(now_ms() + ARGV[2]), 'kept:' .. ARGV[1])
  end
  if count_holders() > 0 then
    rest = value
  end
end
local entered_before = entered
if shares or ARGV[2] == '0' then
  local first, stays = promote(rest, ARGV[3], ARGV[4])
  if rest and entered == entered_before then
    keep_for_the_last()
  end
  if not stays then
    redis.call('DEL', KEYS[1])
  end
  -- The head asks again: there are more behind it, or it learns the time left.
  if first == false or first and keeps then
    push_to_head()
  end
  return shares and tonumber(shares) <= now_ms() and 0 or 1
end
-- The label stays, the token does not: a renewal in flight finds nothing to renew.
local placeholder = string.gsub(ARGV[1], '[^/]+$', string.rep('0', 32))
local set = redis.pcall('SET', KEYS[1], placeholder, 'PX', ARGV[2])
if type(set) == 'table' and set.err then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
push_to_head()
return 1
