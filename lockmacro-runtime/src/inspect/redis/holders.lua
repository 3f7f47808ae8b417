-- Reads the holders of a lock, those whose leases end first. Writes nothing.
--
-- KEYS     the lock and those who share it, see queue.lua
-- ARGV[1]  the most holders to return
-- returns  for each its token, and what is left of its lease in milliseconds. Of one that shares the
--          lock the token ends with `shared`, or with zeros where a `min_hold` keeps it
local value = redis.call('GET', KEYS[1])
if not value then
  return {}
elseif string.sub(value, -7) ~= '/shared' then
  return { { value, redis.call('PTTL', KEYS[1]) } }
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local after = string.format('(%.0f', now)
local range = { 'BYSCORE', 'LIMIT', 0, ARGV[1], 'WITHSCORES' }
local live = redis.call('ZRANGE', KEYS[2], after, '+inf', unpack(range))
local found = {}
for nth = 1, #live, 2 do
  local kept = string.match(live[nth], '^kept:(.*)')
  local label = string.sub(kept or live[nth], 1, -33)
  found[#found + 1] = { label .. (kept and string.rep('0', 32) or 'shared'), live[nth + 1] - now }
end
return found
