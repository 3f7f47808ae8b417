-- The deferred calls of one function: put before the scripts that work on them.
--
-- KEYS[1]  the calls: a hash. A call has its arguments under its id, and under id#k the key of its
--          lock, id#n how often it was tried, id#b how often it was busy, id#t how often it was taken,
--          which tells its workers apart, id#w by which question it was taken, id#s when the end of so
--          many was told, id#u when it is the only one of its key, id#e why it failed last, id#a
--          how often it may be taken without an end, and once more
-- KEYS[2]  who waits: a sorted set of ids by when they are due
-- KEYS[3]  who is worked on: a sorted set of ids by when they go back unless their worker is heard of
-- KEYS[4]  the dead letters: a sorted set of ids by when they were given up
-- KEYS[5]  the only ones: a hash of ids by the keys of their locks
-- KEYS[6]  workers with nothing to do: a sorted set of "number|channel" by when they look again
-- KEYS[7]  what is over: a sorted set by when nobody needs to know any more, of the ids of calls, of id#t
--          for those that were ended by a worker, and of questions that were answered by calls
--
-- All times are the server's, in milliseconds. What nobody has touched for 30 days is forgotten.
local KEPT = 30 * 24 * 60 * 60 * 1000
-- Who stores a call may not have been answered, and stores it again.
local KNOWN = 30 * 1000

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function number(value)
  return string.format('%.0f', value)
end

-- Also for who only looks: all is kept as long as any of it.
local function touch()
  for nth = 1, 5 do
    redis.call('PEXPIRE', KEYS[nth], KEPT)
  end
end

-- A write first: a replica refuses the script then. Those that make new keys do it again.
touch()

-- What a script has changed stays when it fails later, as it does where a key is something else. So that is
-- found out before.
for _, hash in ipairs({ KEYS[1], KEYS[5] }) do
  redis.call('HEXISTS', hash, '')
end
for _, set in ipairs({ KEYS[2], KEYS[3], KEYS[4], KEYS[6], KEYS[7] }) do
  redis.call('ZSCORE', set, '')
end

local function know(what)
  redis.call('ZREMRANGEBYSCORE', KEYS[7], '-inf', number(now))
  redis.call('ZADD', KEYS[7], number(now + KNOWN), what)
  redis.call('PEXPIRE', KEYS[7], KNOWN)
end

local function forget(id)
  local fields = { id }
  for nth, field in ipairs({ '#k', '#n', '#b', '#t', '#w', '#s', '#u', '#e', '#a' }) do
    fields[1 + nth] = id .. field
  end
  redis.call('HDEL', KEYS[1], unpack(fields))
  know(id)
end

-- Changes a number of a call; what is none counts as 0.
local function count(field, by)
  local counted = tonumber(redis.call('HGET', KEYS[1], field)) or 0
  if counted ~= math.floor(counted) or counted < 0 or counted > 2 ^ 31 then
    counted = 0
  end
  counted = math.max(counted + by, 0)
  redis.call('HSET', KEYS[1], field, number(counted))
  return counted
end

-- Whether a call is still that of the worker that took it as the `nth`: nobody has taken it since, and
-- its end was not told. Of one that went back, because its worker was not heard of, nobody else may
-- count on its being run, as who finds the only one of a key does.
local function is_taken(id, nth)
  local taken, told, only = unpack(redis.call('HMGET', KEYS[1], id .. '#t', id .. '#s', id .. '#u'))
  return taken == nth and told ~= nth and (not only or redis.call('ZSCORE', KEYS[3], id))
end

-- Makes one call of two. It has failed as often as either, so that one that always fails comes to an end.
local function fold(id, other)
  for _, field in ipairs({ '#n', '#b' }) do
    count(other .. field, math.max(count(id .. field, 0) - count(other .. field, 0), 0))
  end
  local error = redis.call('HGET', KEYS[1], id .. '#e')
  if error then
    redis.call('HSET', KEYS[1], other .. '#e', error)
  end
  forget(id)
end

-- Has a call wait, and wakes who has nothing to do if it is due first. Where another one of those of which
-- one is enough waits for the same key, that one stands for both.
local function wait(id, delay)
  local due = now + delay
  local only, key = unpack(redis.call('HMGET', KEYS[1], id .. '#u', id .. '#k'))
  if only and key then
    local other = redis.call('HGET', KEYS[5], key)
    local its = other and other ~= id and redis.call('ZSCORE', KEYS[2], other)
    if its then
      fold(id, other)
      id, due = other, math.min(due, tonumber(its))
    else
      redis.call('HSET', KEYS[5], key, id)
    end
  end
  redis.call('ZADD', KEYS[2], number(due), id)
  if redis.call('ZRANGE', KEYS[2], 0, 0)[1] == id then
    redis.call('ZREMRANGEBYSCORE', KEYS[6], '-inf', number(now))
    for _, idle in ipairs(redis.call('ZRANGE', KEYS[6], 0, 99)) do
      local name, channel = string.match(idle, '^(%d+)|(.*)$')
      if name then
        -- In a cluster each slot has channels of its own.
        local publish = string.sub(channel, 1, 5) == 'lm1:{' and 'SPUBLISH' or 'PUBLISH'
        redis.pcall(publish, channel, name .. '|0|0|0')
      end
    end
  end
end

-- Makes a call a dead letter, of which the latest ones are kept.
local function give_up(id, error, most)
  redis.call('HSET', KEYS[1], id .. '#e', error)
  redis.call('ZADD', KEYS[4], number(now), id)
  while redis.call('ZCARD', KEYS[4]) > tonumber(most) do
    forget(redis.call('ZPOPMIN', KEYS[4])[1])
  end
end

-- Ends the waiting of a call.
local function leave(id)
  redis.call('ZREM', KEYS[2], id)
  local key = redis.call('HGET', KEYS[1], id .. '#k')
  if key and redis.call('HGET', KEYS[5], key) == id then
    redis.call('HDEL', KEYS[5], key)
  end
end

