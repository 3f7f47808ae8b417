-- Reads the value that a holder of the lock has kept, or keeps one if the token holds the lock.
--
-- KEYS     the lock and its value
-- ARGV     the token, the value and its time in milliseconds; to read: none
-- returns  the value, or nil; 1 when a value was kept, else 0
--
-- A read is a GETEX, which counts as a write: a replica refuses it, where GET would return a value of
-- before a failover. The other branch begins with a GET, so that a full server refuses the SET.
if #ARGV == 0 then
  return redis.call('GETEX', KEYS[2])
end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return 1
