-- Renews a worker's lease on a job.
--
-- ARGV[1]  its id
-- ARGV[2]  how often it was taken, as the worker knows
-- ARGV[3]  the lease in milliseconds
-- returns  1, or 0 when the worker does not have it any more
local id = ARGV[1]
if not is_taken(id, ARGV[2]) then
  return 0
end
-- After too many leases without a report it is dead.
leave(id)
redis.call('ZADD', KEYS[3], number(now + ARGV[3]), id)
touch()
return 1
