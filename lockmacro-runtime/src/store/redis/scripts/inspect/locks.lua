-- Reads locks. Writes nothing.
--
-- KEYS     three for each lock: the lock, its queue and those who share it, see queue.lua
-- ARGV[1]  the length of the longest token in bytes
-- returns  for each lock { its value, up to that length; its PTTL; the number of waiters, nil when
--          the queue key holds another type; 1 when the lock holds another type, else 0; the
--          number of those who share it }
local function wrong_type(reply)
  return type(reply) == 'table' and string.find(reply.err, 'WRONGTYPE', 1, true)
end

-- The number of those who share a lock.
local function count_holders(key)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  return redis.pcall('ZCOUNT', key, string.format('(%.0f', now), '+inf')
end

local found = {}
for nth = 1, #KEYS, 3 do
  local value = redis.pcall('GETRANGE', KEYS[nth], 0, ARGV[1])
  local other = 0
  if wrong_type(value) then
    value, other = '', 1
  end
  local waiters = redis.pcall('ZCARD', KEYS[nth + 1])
  if wrong_type(waiters) then
    waiters = false
  end
  local is_shared = type(value) == 'string' and string.sub(value, -7) == '/shared'
  local sharing = is_shared and count_holders(KEYS[nth + 2]) or 0
  if wrong_type(sharing) then
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
