-- Ends the work on a call. Idempotent until the call is taken again.
--
-- ARGV[1]  its id
-- ARGV[2]  how often it was taken, by the worker's knowledge
-- ARGV[3]  "done"; "again" after a failure; "back", as if it had not been taken; or "dead"
-- ARGV[4]  in how many milliseconds it is due again
-- ARGV[5]  why it failed
-- ARGV[6]  how many dead letters are kept
-- returns  1, or 0 when it is not that worker's any more
local id, nth, how = ARGV[1], ARGV[2], ARGV[3]
if not is_taken(id, nth) then
  local told, taken = unpack(redis.call('HMGET', KEYS[1], id .. '#s', id .. '#t'))
  local is_told = told == nth and taken == nth or redis.call('ZSCORE', KEYS[7], id)
  return is_told and 1 or 0
end
if redis.call('ZREM', KEYS[3], id) == 0 then
  leave(id)
end
if how == 'done' then
  forget(id)
  return 1
end
redis.call('HSET', KEYS[1], id .. '#s', nth)
if how == 'back' then
  count(id .. '#n', -1)
  wait(id, 0)
else
  redis.call('HSET', KEYS[1], id .. '#e', ARGV[5])
  if how == 'again' then
    wait(id, tonumber(ARGV[4]))
  else
    redis.call('ZADD', KEYS[4], number(now), id)
    while redis.call('ZCARD', KEYS[4]) > tonumber(ARGV[6]) do
      forget(redis.call('ZPOPMIN', KEYS[4])[1])
    end
  end
end
touch()
return 1
