-- Has a call tried again from the start, or removes it; only while nobody works on it.
--
-- ARGV[1]  its id
-- ARGV[2]  "retry" or "remove"
-- returns  1, or 0 when it does not wait and is no dead letter
local id = ARGV[1]
local waits = redis.call('ZSCORE', KEYS[2], id)
if not waits and not redis.call('ZSCORE', KEYS[4], id) then
  return 0
end
leave(id)
redis.call('ZREM', KEYS[4], id)
if ARGV[2] == 'retry' then
  redis.call('HDEL', KEYS[1], id .. '#n')
  -- A worker that had it, and was not heard of, is late now.
  count(id .. '#t', 1)
  wait(id, 0)
else
  forget(id)
end
touch()
return 1
