-- The beginning of release.lua, with its KEYS and ARGV: mostly the queue is empty, and then no more
-- has to be done, nor defined. The rest uses `value`, `held` and `shares`.
--
-- Neither GETEX nor DEL needs memory, so a lock can be released on a full server; and after a first
-- write a script may continue to write.
local value = redis.pcall('GETEX', KEYS[1])
local held = value == ARGV[1]
-- The end of the token's lease, if it shares the lock, and whether it is the only one to do so.
local shares, is_only
if not held and type(value) == 'string' and string.sub(value, -7) == '/shared' then
  local first_two = redis.call('ZRANGE', KEYS[5], 0, 1, 'WITHSCORES')
  is_only = first_two[1] == ARGV[1] and not first_two[3]
  shares = is_only and first_two[2] or redis.call('ZSCORE', KEYS[5], ARGV[1])
end
if (held or shares) and ARGV[2] == '0' and redis.call('ZCARD', KEYS[2]) == 0 then
  if held then
    redis.call('DEL', KEYS[1])
    return 1
  end
  if is_only then
    -- The key is there, so nobody else was let in, even if the lease has just ended.
    redis.call('DEL', KEYS[1], KEYS[5])
    return 1
  end
  redis.call('ZREM', KEYS[5], ARGV[1])
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local last = redis.call('ZRANGE', KEYS[5], -1, -1, 'WITHSCORES')[2]
  if not last or tonumber(last) <= now then
    redis.call('DEL', KEYS[1], KEYS[5])
  elseif tonumber(last) < tonumber(shares) then
    redis.call('PEXPIRE', KEYS[1], last - now)
    redis.call('PEXPIRE', KEYS[5], last - now)
  end
  return tonumber(shares) > now and 1 or 0
end

