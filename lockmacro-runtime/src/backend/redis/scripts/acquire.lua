-- Asks once for a lock: when the plain SET said no, when its answer never came, or when the grant
-- is to come with a fence. Idempotent for a token: a lock that is already its own is granted again,
-- with the whole ttl and the same fence.
--
-- KEYS[1]  the lock
-- KEYS[2]  the lock's last fence; only when a fence is asked for
-- ARGV[1]  the token
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  how long the last fence is kept, in milliseconds; with KEYS[2]
-- returns  1 when granted, or the fence; else { time left in milliseconds, -1 without expiry;
--          the value held }
--
-- GETEX without options reads like GET but counts as a write, so a replica refuses the script
-- (READONLY) where GET would answer from old data.
local held = redis.call('GETEX', KEYS[1])
if held and held ~= ARGV[1] then
  return { redis.call('PTTL', KEYS[1]), string.sub(held, 1, 256) }
end

if KEYS[2] then
  local last = tonumber(redis.call('GET', KEYS[2])) or 0
  if not held or last == 0 then
    -- The server's time, so that fences go on growing when the last one is forgotten.
    local time = redis.call('TIME')
    last = math.max(last + 1, time[1] * 1000000 + time[2])
  end
  redis.call('SET', KEYS[2], string.format('%.0f', last), 'PX', ARGV[3])
end

redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return KEYS[2] and redis.call('GET', KEYS[2]) or 1
