-- Renews a lock if the token still holds it. Never acquires the lock, and never shortens the time
-- left: of two renewals the one that arrives late must not undo the other.
--
-- KEYS[1]  the lock
-- KEYS[5]  those who share it, see queue.lua; KEYS[2] where there are no more than two keys; none
--          for an exclusive lock
-- ARGV[1]  the token
-- ARGV[2]  the ttl in milliseconds
-- returns  1 when the token held the lock, else 0
--
-- Writes whenever the token holds the lock, also without a change: a WAIT for replicas refers to
-- the last write. GETEX without options reads like GET but counts as a write, so that a replica
-- refuses the script.
local value, holders = redis.call('GETEX', KEYS[1]), KEYS[5] or KEYS[2]
local function extend(key)
  redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), tonumber(ARGV[2])))
end
if value == ARGV[1] then
  extend(KEYS[1])
  return 1
end
if not value or not holders or string.sub(value, -7) ~= '/shared' then
  return 0
end
local ends, time = redis.call('ZSCORE', holders, ARGV[1]), redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if not ends or tonumber(ends) <= now then
  return 0
end
redis.call('ZADD', holders, string.format('%.0f', math.max(ends, now + ARGV[2])), ARGV[1])
extend(KEYS[1])
extend(holders)
return 1
