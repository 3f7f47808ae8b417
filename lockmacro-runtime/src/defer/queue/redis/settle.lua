-- Ends the work on a job. Idempotent until the job is taken again.
--
-- ARGV[1]  its id
-- ARGV[2]  how often it was taken, as the worker knows
-- ARGV[3]  "done"; "again" after a failure; "busy" or "back", which are no tries; or "dead"
-- ARGV[4]  the milliseconds until it is due again
-- ARGV[5]  its error
-- ARGV[6]  the most dead jobs to keep
-- returns  1, or 0 when the worker does not have it any more
local id, nth, how = ARGV[1], ARGV[2], ARGV[3]
if not is_taken(id, nth) then
  local reported, taken = unpack(redis.call('HMGET', KEYS[1], id .. '#s', id .. '#t'))
  local is_settled = reported == nth and taken == nth
    or redis.call('ZSCORE', KEYS[7], id .. '#' .. nth)
  return is_settled and 1 or 0
end
if redis.call('ZREM', KEYS[3], id) == 0 then
  -- After too many leases without a report it is dead.
  leave(id)
end
redis.call('HSET', KEYS[1], id .. '#s', nth)
if how == 'again' or how == 'busy' then
  redis.call('HSET', KEYS[1], id .. '#e', ARGV[5])
end
if how == 'busy' or how == 'back' then
  count(id .. '#n', -1)
end
if how == 'busy' then
  count(id .. '#b', 1)
end
if how == 'done' then
  forget(id)
elseif how == 'dead' then
  make_dead(id, ARGV[5], ARGV[6])
else
  wait(id, tonumber(ARGV[4]))
end
if redis.call('HEXISTS', KEYS[1], id) == 0 then
  remember(id .. '#' .. nth)
end
touch()
return 1
