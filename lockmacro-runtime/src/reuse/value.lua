-- Reads the value that a holder of the lock has kept, or keeps one if the token holds the lock.
--
-- KEYS     the lock and its values: a hash with a field for each function that keeps one, and the
--          field `ends` with the ends of their times
-- ARGV     the function's name; to keep a value also the token, the value and its time in
--          milliseconds; an empty value removes that before
-- returns  the value and what is left of its time, or nil; 1 when a value was kept, else 0
--
-- A read begins with a write that changes nothing: a replica refuses it, where HGET would return a
-- value of before a failover. The other branch begins with a GET, so that a full server refuses the
-- HSET.
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local name = 'of ' .. ARGV[1]
local function ends_of_all()
  local packed = redis.call('HGET', KEYS[2], 'ends')
  return packed and cmsgpack.unpack(packed) or {}
end

if #ARGV == 1 then
  redis.call('HDEL', KEYS[2], '')
  local left = (ends_of_all()[name] or 0) - now
  return left > 0 and { redis.call('HGET', KEYS[2], name), left } or false
end
if redis.call('GET', KEYS[1]) ~= ARGV[2] then
  return 0
end
local ends = ends_of_all()
ends[name] = ARGV[3] ~= '' and now + ARGV[4] or 0
if ends[name] > 0 then
  redis.call('HSET', KEYS[2], name, ARGV[3])
end
-- Values are users' data: none stays for long because another one is kept for longer.
local last = now
for each, at in pairs(ends) do
  if at <= now then
    redis.call('HDEL', KEYS[2], each)
    ends[each] = nil
  end
  last = math.max(last, at)
end
redis.call('HSET', KEYS[2], 'ends', cmsgpack.pack(ends))
redis.call('PEXPIRE', KEYS[2], math.max(last - now, 1))
return 1
