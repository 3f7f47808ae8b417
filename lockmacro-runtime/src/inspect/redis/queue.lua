-- Reads the queue of a lock. Writes nothing.
--
-- KEYS     the lock, its queue and its records, see queue.lua
-- ARGV[1]  the most waiters to return
-- returns  { the number of waiters; for each { its token; the milliseconds until it counts as dead
--          unless it asks again; the number of callers it waits for; the usual hold time in
--          milliseconds }, nil when not known }
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = {}
for _, token in ipairs(redis.call('ZRANGE', KEYS[2], 0, ARGV[1] - 1)) do
  local record = redis.call('HGET', KEYS[3], token) or ''
  local deadline = string.match(record, '^(%d+)|')
  local left = deadline and math.max(deadline - now, 0) or false
  local about = '^%d+|%d+|%d|%d|%d+|[^|]*|(%d+)|?%d*|?(%d*)'
  local callers, usual = string.match(record, about)
  found[#found + 1] = { token, left, tonumber(callers) or false, tonumber(usual) or false }
end
return { redis.call('ZCARD', KEYS[2]), found }
