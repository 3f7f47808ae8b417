-- Gives a lock back without looking at its line: for a slot of a cluster on its way to another node,
-- which refuses scripts on several keys of which only some are there. Who waits asks again, and is
-- served in order when the slot has arrived.
--
-- KEYS[1]  the lock
-- ARGV[1]  the token
-- returns  1 when the lock was held by the token, else 0
if redis.call('GETEX', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
