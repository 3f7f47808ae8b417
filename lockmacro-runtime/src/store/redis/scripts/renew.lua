-- Lets the ttl of a lock run anew if it is still the token's own. Never takes the lock, and never
-- shortens what is left: of two renewals the one that arrives late must not undo the other.
--
-- KEYS[1]  the lock
-- ARGV[1]  the token
-- ARGV[2]  the ttl in milliseconds
-- returns  1 when the lock was held by the token, else 0
--
-- Writes whenever the lock is held, also when nothing is lengthened: who waits for replicas waits
-- for the last write.
-- GETEX without options reads like GET but counts as a write, so that a replica refuses the script.
if redis.call('GETEX', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))
return 1
