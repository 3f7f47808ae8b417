-- The second round of a fence over several nodes: raises this node's last fence to the largest that
-- any node issued in the first round, if the token still holds the lock here.
--
-- KEYS[1]  the lock
-- KEYS[2]  the last fence of this lock
-- ARGV[1]  the token
-- ARGV[2]  the fence
-- ARGV[3]  the retention of the fence in milliseconds
-- returns  1 when the token held the lock, else 0
--
-- GETEX without options reads like GET but counts as a write, so that a replica refuses the script.
if redis.call('GETEX', KEYS[1]) ~= ARGV[1] then
  return 0
end
if (tonumber(redis.call('GET', KEYS[2])) or 0) < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
end
return 1
