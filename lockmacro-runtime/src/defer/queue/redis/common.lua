-- The jobs of one function: put before the scripts that work on them.
--
-- KEYS[1]  the jobs: a hash. A job has its arguments under its id. Further fields are id#k the
--          key of its lock; id#n the number of tries; id#b how often it was busy; id#t how often it
--          was taken, which tells its workers apart; id#w the request that took it; id#s the last
--          of these numbers whose end was reported; id#u the time when the only job of its key was
--          stored last, or 1 from earlier versions, set for such a job alone;
--          id#l the time until which later jobs put it off, where they do; id#e its last error;
--          id#a the number of leases that may end without a report, before one more makes it dead
-- KEYS[2]  the waiting jobs: a sorted set of ids by due time
-- KEYS[3]  the running jobs: a sorted set of ids by the end of their worker's lease
-- KEYS[4]  the dead jobs: a sorted set of ids by the time when they were abandoned, each later
--          than the one before
-- KEYS[5]  the only jobs of a key: a hash of ids by the keys of their locks
-- KEYS[6]  idle workers: a sorted set of "number|channel" by the time when they look again
-- KEYS[7]  what has ended: a sorted set by the time when it is forgotten, of the ids of jobs, of
--          id#t for jobs that a worker ended, and of requests that were answered by jobs
--
-- All times are the server's, in milliseconds. After 30 days without access the jobs are deleted.
local KEPT = 30 * 24 * 60 * 60 * 1000
-- A caller without an answer stores its job again within this time.
local REMEMBERED = 30 * 1000

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function number(value)
  return string.format('%.0f', value)
end

-- Also for reads: all keys are kept for as long as any of them.
local function touch()
  for nth = 1, 5 do
    redis.call('PEXPIRE', KEYS[nth], KEPT)
  end
end

-- A write first, so that a replica refuses the script. Scripts that make new keys call it again.
touch()

-- A script that fails keeps its earlier changes, and fails where a key holds another type or the
-- user lacks a right. Therefore the types are checked first, by the commands that locks do not need.
redis.call('HEXISTS', KEYS[1], '')
redis.call('HMGET', KEYS[5], '')
for _, set in ipairs({ KEYS[2], KEYS[3], KEYS[4], KEYS[6], KEYS[7] }) do
  redis.call('ZRANGEBYSCORE', set, 0, 0, 'LIMIT', 0, 0)
end

local function remember(what)
  redis.call('ZREMRANGEBYSCORE', KEYS[7], '-inf', number(now))
  redis.call('ZADD', KEYS[7], number(now + REMEMBERED), what)
  redis.call('PEXPIRE', KEYS[7], REMEMBERED)
end

local function forget(id)
  local fields = { id }
  for nth, field in ipairs({ '#k', '#n', '#b', '#t', '#w', '#s', '#u', '#l', '#e', '#a' }) do
    fields[1 + nth] = id .. field
  end
  redis.call('HDEL', KEYS[1], unpack(fields))
  remember(id)
end

-- Changes a counter of a job; a value that is no counter counts as 0.
local function count(field, by)
  local counted = tonumber(redis.call('HGET', KEYS[1], field)) or 0
  if counted ~= math.floor(counted) or counted < 0 or counted > 2 ^ 31 then
    counted = 0
  end
  counted = math.max(counted + by, 0)
  redis.call('HSET', KEYS[1], field, number(counted))
  return counted
end

-- Gives a job all its attempts again. A worker that had it, and whose lease has ended, must not
-- report its end any more.
local function restart(id)
  redis.call('HDEL', KEYS[1], id .. '#n', id .. '#b')
  redis.call('HSET', KEYS[1], id .. '#s', number(count(id .. '#t', 1)))
end

-- Whether the worker that took the job as the `nth` still has it: nobody has taken it since, and
-- its end was not reported. Once the lease of its worker has ended, the only job of a key does not
-- count as taken: a new job with the same key relies on that one being run.
local function is_taken(id, nth)
  local fields = { id .. '#t', id .. '#s', id .. '#u' }
  local taken, reported, only = unpack(redis.call('HMGET', KEYS[1], unpack(fields)))
  return taken == nth and reported ~= nth and (not only or redis.call('ZSCORE', KEYS[3], id))
end

-- Merges one job into another. Each counter becomes the larger of the two, so that a job that
-- always fails comes to an end.
local function merge(id, other)
  for _, field in ipairs({ '#n', '#b' }) do
    count(other .. field, math.max(count(id .. field, 0) - count(other .. field, 0), 0))
  end
  local error = redis.call('HGET', KEYS[1], id .. '#e')
  if error then
    redis.call('HSET', KEYS[1], other .. '#e', error)
  end
  forget(id)
end

-- Makes a job wait, and wakes idle workers if it is due first. A job that is the only one of its
-- key is merged into the one that already waits.
local function wait(id, delay)
  local due = now + delay
  local only, key = unpack(redis.call('HMGET', KEYS[1], id .. '#u', id .. '#k'))
  if only and key then
    local other = redis.call('HGET', KEYS[5], key)
    local other_due = other and other ~= id and redis.call('ZSCORE', KEYS[2], other)
    if other_due then
      merge(id, other)
      id, due = other, math.min(due, tonumber(other_due))
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
        -- In a cluster each slot has its own channel.
        local publish = string.sub(channel, 1, 5) == 'lm1:{' and 'SPUBLISH' or 'PUBLISH'
        redis.pcall(publish, channel, name .. '|0|0|0')
      end
    end
  end
end

-- Makes a job dead; only the latest dead jobs are kept.
local function make_dead(id, error, most)
  redis.call('HSET', KEYS[1], id .. '#e', error)
  -- Two of one millisecond would be ordered by their ids, which are random.
  local last = tonumber(redis.call('ZRANGE', KEYS[4], -1, -1, 'WITHSCORES')[2])
  local abandoned = last and math.max(now, last + 0.01) or now
  redis.call('ZADD', KEYS[4], string.format('%.2f', abandoned), id)
  while redis.call('ZCARD', KEYS[4]) > tonumber(most) do
    forget(redis.call('ZPOPMIN', KEYS[4])[1])
  end
end

-- Removes a job from the waiting ones and from the dead jobs.
local function leave(id)
  redis.call('ZREM', KEYS[2], id)
  redis.call('ZREM', KEYS[4], id)
  local key = redis.call('HGET', KEYS[1], id .. '#k')
  if key and redis.call('HGET', KEYS[5], key) == id then
    redis.call('HDEL', KEYS[5], key)
  end
end

