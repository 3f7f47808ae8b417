-- Has calls tried again from the start, or removes them; only while nobody works on them.
--
-- ARGV[1]  "retry" or "remove"
-- ARGV[2]  the id of one that waits or is a dead letter
-- ARGV[3]  or of how many dead letters instead, the oldest first; 0 for the one
-- returns  how many it has done that to
local how, one, dead = ARGV[1], ARGV[2], tonumber(ARGV[3])
local ids = { one }
if dead > 0 then
  ids = redis.call('ZRANGE', KEYS[4], 0, dead - 1)
elseif not redis.call('ZSCORE', KEYS[2], one) and not redis.call('ZSCORE', KEYS[4], one) then
  return 0
end
for _, id in ipairs(ids) do
  leave(id)
  redis.call('ZREM', KEYS[4], id)
  if how == 'retry' then
    redis.call('HDEL', KEYS[1], id .. '#n', id .. '#b')
    -- A worker that had it, and was not heard of, is late now.
    redis.call('HSET', KEYS[1], id .. '#s', number(count(id .. '#t', 1)))
    wait(id, 0)
  else
    forget(id)
  end
end
touch()
return #ids
