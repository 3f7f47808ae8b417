-- Reads locks. Writes nothing.
--
-- KEYS     three for each lock: the lock, its queue and those who share it, see queue.lua
-- ARGV[1]  the length of the longest token in bytes
-- returns  for each lock { its value, up to that length; its PTTL; the number of waiters, -1 when
--          the queue key holds another type; 1 when the lock holds another type, else 0; the
--          number of those who share it }
local function wrong_type(reply)
  return type(reply) == 'table' and string.find(reply.err, 'WRONGTYPE', 1, true)
end

local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local found = {}
for nth = 1, #KEYS, 3 do
  local value = redis.pcall('GETRANGE', KEYS[nth], 0, ARGV[1])
  local other = 0
  if wrong_type(value) then
    value, other = '', 1
  end
  local waiters = redis.pcall('ZCARD', KEYS[nth + 1])
  if wrong_type(waiters) then
    waiters = -1
  end
  local sharing = redis.pcall('ZCOUNT', KEYS[nth + 2], '(' .. now, '+inf')
  if wrong_type(sharing) or string.sub(value, -7) ~= '/shared' then
    sharing = 0
  end
  for _, reply in ipairs({ value, waiters, sharing }) do
    if type(reply) == 'table' then
      return reply
    end
  end
  found[#found + 1] = { value, redis.call('PTTL', KEYS[nth]), waiters, other, sharing }
end
return found
