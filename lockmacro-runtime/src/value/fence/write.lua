-- Writes a value that a lock protects, unless a later holder of the lock has written already.
--
-- KEYS[1]  the resource: a hash with the fields `value` and `fence`
-- ARGV[1]  the fence of the writer's lock
-- ARGV[2]  the value
-- returns  1 when written, 0 when a larger fence was seen, an error for what is no fence

-- `tonumber` alone takes `nan`, which is not smaller than any number, and rounds what is too large.
local function fence_of(text)
  if string.match(text, '^%d+$') and (#text < 16 or #text == 16 and text <= '9007199254740992') then
    return tonumber(text)
  end
end

local fence, seen = fence_of(ARGV[1] or ''), redis.call('HGET', KEYS[1], 'fence')
if not fence then
  return redis.error_reply('ERR the first argument is not a fence, a whole number from 0 to 2^53')
elseif seen and not fence_of(seen) then
  return redis.error_reply('ERR the field `fence` of the hash is not a fence')
elseif seen and fence_of(seen) > fence then
  return 0
end
redis.call('HSET', KEYS[1], 'value', ARGV[2], 'fence', ARGV[1])
return 1
