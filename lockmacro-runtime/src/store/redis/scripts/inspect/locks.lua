-- Tells about locks, and changes nothing.
--
-- KEYS     two for each lock: the lock, and who waits for it, see queue.lua
-- ARGV[1]  the length of the longest token, in bytes
-- returns  for each { its value, as far as it may be a token; its PTTL; how many wait, -1 when that is
--          no line; 1 when the lock is of another type, else 0 }
local function wrong_type(reply)
  return type(reply) == 'table' and string.find(reply.err, 'WRONGTYPE', 1, true)
end

local found = {}
for nth = 1, #KEYS, 2 do
  local value = redis.pcall('GETRANGE', KEYS[nth], 0, ARGV[1])
  local other = 0
  if wrong_type(value) then
    value, other = '', 1
  end
  local waiters = redis.pcall('ZCARD', KEYS[nth + 1])
  if wrong_type(waiters) then
    waiters = -1
  end
  for _, reply in ipairs({ value, waiters }) do
    if type(reply) == 'table' then
      return reply
    end
  end
  found[#found + 1] = { value, redis.call('PTTL', KEYS[nth]), waiters, other }
end
return found
