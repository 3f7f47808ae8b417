-- Retries jobs from the start, or removes them; only jobs that are not running.
--
-- ARGV[1]  "retry" or "remove"
-- ARGV[2]  the id of a job that waits or is dead
-- ARGV[3]  a number of dead jobs instead, the oldest first; 0 for the one job
-- returns  the number of jobs
local how, one, dead = ARGV[1], ARGV[2], tonumber(ARGV[3])
local ids = { one }
if dead > 0 then
  ids = redis.call('ZRANGE', KEYS[4], 0, dead - 1)
elseif not redis.call('ZSCORE', KEYS[2], one) and not redis.call('ZSCORE', KEYS[4], one) then
  return 0
end
for _, id in ipairs(ids) do
  leave(id)
  if how == 'retry' then
    restart(id)
    wait(id, 0)
  else
    forget(id)
    -- Who stores it again means it, and has it stored.
    redis.call('ZREM', KEYS[7], id)
  end
end
touch()
return #ids
