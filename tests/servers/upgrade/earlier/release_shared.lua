-- Releases tokens that share locks, each if nobody waits for its lock: it costs less than
-- release.lua, which is called when there are waiters. Merges the calls of many callers.
--
-- KEYS     for each lock: the lock, its queue and its holders, see queue.lua
-- ARGV     for each lock its token
-- returns  for each lock 1 when its token held it, else 0; 2 when nothing was done because there
--          are waiters; see for_each_call.lua
--
-- As in release_unqueued.lua the first command is a GETEX.
local calls = #ARGV

local function one(nth)
  local lock, queue, holders = unpack(KEYS, 3 * nth - 2, 3 * nth)
  local token = ARGV[nth]
  local value = redis.pcall('GETEX', lock)
  if type(value) == 'table' or redis.call('ZCARD', queue) > 0 then
    return 2
  end
  if not value then
    -- A request that was denied a command may have left holders without a key.
    redis.call('DEL', holders)
  end
  if not value or string.sub(value, -7) ~= '/shared' then
    return 0
  end
  local first_two = redis.call('ZRANGE', holders, 0, 1)
  if first_two[1] == token and not first_two[2] then
    -- The key is there, so nobody else was let in, even if the lease has just ended.
    redis.call('DEL', lock, holders)
    return 1
  end
  local ends = redis.call('ZSCORE', holders, token)
  if not ends then
    return 0
  end
  redis.call('ZREM', holders, token)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local last = redis.call('ZRANGE', holders, -1, -1, 'WITHSCORES')[2]
  if not last or tonumber(last) <= now then
    redis.call('DEL', lock, holders)
  elseif tonumber(last) < tonumber(ends) then
    redis.call('PEXPIRE', lock, last - now)
    redis.call('PEXPIRE', holders, last - now)
  end
  return tonumber(ends) > now and 1 or 0
end

