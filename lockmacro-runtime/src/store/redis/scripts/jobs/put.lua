-- Stores a call. Idempotent for an id, also shortly after the call has ended.
--
-- ARGV[1]  its id
-- ARGV[2]  the milliseconds until it is due
-- ARGV[3]  its arguments
-- ARGV[4]  the key of its lock
-- ARGV[5]  1 when a call that waits with the same key is enough
-- ARGV[6]  the most calls that may wait
-- ARGV[7]  the number of leases that may end without a report
-- returns  { the id under which it waits; the milliseconds until that is due, 0 for one that has
--          ended }, nil when too many wait
local id, delay, arguments, key, only, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local there = redis.call('HEXISTS', KEYS[1], id) == 1 and id
if not there and only == '1' then
  local other = redis.call('HGET', KEYS[5], key)
  there = other and redis.call('ZSCORE', KEYS[2], other) and other
end
if there then
  local due = tonumber(redis.call('ZSCORE', KEYS[2], there)) or now
  return { there, math.max(due - now, 0) }
end
if redis.call('ZSCORE', KEYS[7], id) then
  return { id, 0 }
end
if redis.call('ZCARD', KEYS[2]) >= tonumber(most) then
  return nil
end
redis.call('HSET', KEYS[1], id, arguments, id .. '#k', key, id .. '#a', ARGV[7])
if only == '1' then
  redis.call('HSET', KEYS[1], id .. '#u', '1')
  redis.call('HDEL', KEYS[5], key)
end
wait(id, tonumber(delay))
touch()
return { id, tonumber(delay) }
