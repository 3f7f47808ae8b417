-- Asks once for a lock whose plain SET said no, or whose earlier answer never came.
-- Idempotent for a token: a lock that is already its own is granted again, with the whole ttl.
--
-- KEYS[1]  the lock
-- ARGV[1]  the token
-- ARGV[2]  the ttl in milliseconds
-- returns  1 when granted, else { time left in milliseconds, -1 without expiry; the value held }
--
-- GETEX without options reads like GET but counts as a write, so a replica refuses the script
-- (READONLY) where GET would answer from old data.
local held = redis.call('GETEX', KEYS[1])
if not held or held == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
return { redis.call('PTTL', KEYS[1]), string.sub(held, 1, 256) }
