-- Releases a lock without a look at its queue: for a slot of a cluster that is being moved, whose
-- node refuses scripts on several keys while only some of them are there. The waiters ask again,
-- and are served in order once the slot has arrived.
--
-- KEYS[1]  the lock
-- ARGV[1]  the token
-- returns  1 when the token held the lock, else 0
if redis.call('GETEX', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
