-- The second round of a fence over several nodes: lifts what this node knows of the last fence to
-- the largest that any of them gave in the first round, if the lock is still the token's own here.
--
-- KEYS[1]  the lock
-- KEYS[2]  the last fence given for this lock
-- ARGV[1]  the token
-- ARGV[2]  the fence
-- ARGV[3]  for how long it is kept, in milliseconds
-- returns  1 when the lock was held by the token, else 0
--
-- GETEX without options reads like GET but counts as a write, so that a replica refuses the script.
if redis.call('GETEX', KEYS[1]) ~= ARGV[1] then
  return 0
end
if (tonumber(redis.call('GET', KEYS[2])) or 0) < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
end
return 1
