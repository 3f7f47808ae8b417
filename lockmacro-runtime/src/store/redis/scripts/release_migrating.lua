-- Releases a lock without a look at its queue: for a slot of a cluster that is being moved, whose
-- node refuses scripts on several keys while only some of them are there. The waiters ask again,
-- and are served in order once the slot has arrived.
--
-- KEYS[1]  the lock
-- KEYS[2]  those who share it, see queue.lua; none for an exclusive lock
-- ARGV[1]  the token
-- returns  1 when the token held the lock, else 0
local value = redis.call('GETEX', KEYS[1])
if value == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
if not value or not KEYS[2] or string.sub(value, -7) ~= '/shared' then
  return 0
end
local ends = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not ends then
  return 0
end
redis.call('ZREM', KEYS[2], ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- Otherwise the key stays until it expires, or until the others release it. A node does not delete a
-- key that is not there while its slot is moved.
local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
if not last or tonumber(last) <= now then
  redis.call('DEL', KEYS[1])
end
return tonumber(ends) > now and 1 or 0
