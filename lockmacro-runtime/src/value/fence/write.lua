-- Writes a value that a lock protects, unless a later holder of the lock has written already.
--
-- KEYS[1]  the resource: a hash with the fields `value` and `fence`
-- ARGV[1]  the fence of the writer's lock
-- ARGV[2]  the value
-- returns  1 when written, 0 when a larger fence was seen
local seen = tonumber(redis.call('HGET', KEYS[1], 'fence'))
if seen and seen > tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'value', ARGV[2], 'fence', ARGV[1])
return 1
