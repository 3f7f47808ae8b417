-- Renews a lock if the token still holds it. Never acquires the lock, and never shortens the time
-- left: of two renewals the one that arrives late must not undo the other.
--
-- KEYS[1]  the lock
-- ARGV[1]  the token
-- ARGV[2]  the ttl in milliseconds
-- returns  1 when the token held the lock, else 0
--
-- Writes whenever the token holds the lock, also without a change: a WAIT for replicas refers to
-- the last write. GETEX without options reads like GET but counts as a write, so that a replica
-- refuses the script.
if redis.call('GETEX', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))
return 1
