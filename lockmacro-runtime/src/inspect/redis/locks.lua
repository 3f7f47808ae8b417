-- Reads locks. Writes nothing.
--
-- KEYS     three for each lock: the lock, its queue and those who share it, see queue.lua
-- ARGV[1]  the length of the longest token in bytes
-- returns  for each lock { its value, up to that length, nil when it holds another type; its PTTL;
--          the number of waiters, nil when the queue key holds another type; the number of those
--          who share it }
-- A reply, or `instead` where the key holds another type.
local function unless_wrong_type(reply, instead)
  if type(reply) == 'table' and string.find(reply.err, 'WRONGTYPE', 1, true) then
    return instead
  end
  return reply
end

local found = {}
for nth = 1, #KEYS, 3 do
  local lock, queue, holders = unpack(KEYS, nth, nth + 2)
  local value = unless_wrong_type(redis.pcall('GETRANGE', lock, 0, ARGV[1]), false)
  local waiters = unless_wrong_type(redis.pcall('ZCARD', queue), false)
  local sharing = 0
  if type(value) == 'string' and string.sub(value, -7) == '/shared' then
    local time = redis.call('TIME')
    local now = string.format('(%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
    sharing = unless_wrong_type(redis.pcall('ZCOUNT', holders, now, '+inf'), 0)
  end
  for _, reply in ipairs({ value, waiters, sharing }) do
    if type(reply) == 'table' then
      return reply
    end
  end
  found[#found + 1] = { value, redis.call('PTTL', lock), waiters, sharing }
end
return found
