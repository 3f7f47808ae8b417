-- Tells who waits for a lock, and changes nothing.
--
-- KEYS     the lock; who waits; how: see queue.lua
-- ARGV[1]  how many to tell
-- returns  { how many wait; then for each its token, and for how many milliseconds its place is kept
--          unless it is heard of, -1 when that is not known }
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = { redis.call('ZCARD', KEYS[2]) }
for _, token in ipairs(redis.call('ZRANGE', KEYS[2], 0, ARGV[1] - 1)) do
  local deadline = string.match(redis.call('HGET', KEYS[3], token) or '', '^(%d+)|')
  found[#found + 1] = token
  found[#found + 1] = deadline and math.max(deadline - now, 0) or -1
end
return found
