-- Takes jobs that are due, for a worker, for the time of a lease. Jobs whose lease has ended go
-- back first, or are dead after too many such leases. Idempotent for a request: a
-- repeated one returns the same jobs, those with an unchanged lease.
--
-- ARGV[1]  the most jobs
-- ARGV[2]  the lease in milliseconds
-- ARGV[3]  the worker to wake when there are no jobs: "number|channel", empty where it cannot be
-- ARGV[4]  the milliseconds after which it looks again by itself
-- ARGV[5]  the id of the request
-- ARGV[6]  the most bytes of arguments to return, the first job excepted
-- ARGV[7]  the most dead jobs to keep
-- ARGV[8]  the error of a new dead job, after the number of its runs
-- returns  { the milliseconds after which to look again, at most the above; the number of waiting
--          entries without arguments or with an id that is not UTF-8, which were removed; for each
--          new dead job { its id; how often it was taken without a reported end }; for each job
--          { its id, arguments, key, and how often it was tried, taken and busy } }
local AT_ONCE = 100
local OF_REQUEST = 10000
-- For jobs that were stored without the field.
local ATTEMPTS = 10

-- The sequences of UTF-8 beside ASCII: bytes from 128 to 191 follow others, not all of them
-- everywhere.
local SEQUENCES = {
  '[\241-\243][\128-\191][\128-\191][\128-\191]',
  '\240[\144-\191][\128-\191][\128-\191]',
  '\244[\128-\143][\128-\191][\128-\191]',
  '[\225-\236\238\239][\128-\191][\128-\191]',
  '\224[\160-\191][\128-\191]',
  '\237[\128-\159][\128-\191]',
  '[\194-\223][\128-\191]',
}

-- A worker handles ids as text.
local function is_text(id)
  for _, sequence in ipairs(SEQUENCES) do
    if not string.find(id, '[\128-\255]') then
      return true
    end
    id = string.gsub(id, sequence, ' ')
  end
  return not string.find(id, '[\128-\255]')
end

local dead = {}

-- Checked here and not by a worker: a job that is too large for every worker's network becomes a
-- dead job, too.
local function is_abandoned(id)
  local fields = { id .. '#a', id .. '#t', id .. '#s' }
  local attempts, taken, reported = unpack(redis.call('HMGET', KEYS[1], unpack(fields)))
  local unreported = (tonumber(taken) or 0) - (tonumber(reported) or 0)
  if unreported <= (tonumber(attempts) or ATTEMPTS) then
    return false
  end
  make_dead(id, number(unreported) .. ARGV[8], ARGV[7])
  if is_text(id) then
    dead[#dead + 1] = { id, number(unreported) }
  end
  return true
end

local lapsed = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', number(now), 'LIMIT', 0, AT_ONCE)
for _, id in ipairs(lapsed) do
  redis.call('ZREM', KEYS[3], id)
  if not is_abandoned(id) then
    wait(id, 0)
  end
end

local calls, strays = {}, 0
local room = tonumber(ARGV[6])
local lease_end = number(now + ARGV[2])

local function add_to_reply(id, arguments, key)
  local tried, taken, busy = count(id .. '#n', 0), count(id .. '#t', 0), count(id .. '#b', 0)
  calls[#calls + 1] = { id, arguments, key or '', tried, taken, busy }
end

-- Takes a job. Returns whether there may be room for more.
local function take(id)
  local arguments, key = unpack(redis.call('HMGET', KEYS[1], id, id .. '#k'))
  room = room - #(arguments or '')
  if room < 0 and #calls > 0 then
    return false
  end
  leave(id)
  if not arguments or not is_text(id) then
    forget(id)
    strays = strays + 1
    return true
  end
  count(id .. '#n', 1)
  count(id .. '#t', 1)
  redis.call('HSET', KEYS[1], id .. '#w', ARGV[5])
  redis.call('ZADD', KEYS[3], lease_end, id)
  add_to_reply(id, arguments, key)
  return true
end

local known = ARGV[1] ~= '0' and redis.call('ZSCORE', KEYS[7], ARGV[5])
if known then
  local first_end = number(known - REMEMBERED + ARGV[2])
  -- Other requests may have taken jobs with the same lease in the same millisecond.
  local taken = redis.call('ZRANGEBYSCORE', KEYS[3], first_end, first_end, 'LIMIT', 0, OF_REQUEST)
  for _, id in ipairs(taken) do
    local fields = redis.call('HMGET', KEYS[1], id .. '#w', id, id .. '#k')
    local request, arguments, key = unpack(fields)
    if request == ARGV[5] and arguments and #calls < tonumber(ARGV[1]) then
      add_to_reply(id, arguments, key)
    end
  end
else
  local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', number(now), 'LIMIT', 0, ARGV[1])
  for _, id in ipairs(due) do
    if not take(id) then
      break
    end
  end
  if #calls > 0 then
    remember(ARGV[5])
  end
end

local again = tonumber(ARGV[4])
for _, times in ipairs({ KEYS[2], KEYS[3] }) do
  local first = tonumber(redis.call('ZRANGE', times, 0, 0, 'WITHSCORES')[2])
  if first then
    again = math.min(again, math.max(first - now, 0))
  end
end
if #calls == 0 and ARGV[3] ~= '' then
  redis.call('ZADD', KEYS[6], number(now + ARGV[4]), ARGV[3])
  redis.call('PEXPIRE', KEYS[6], ARGV[4])
end
touch()
return { again, strays, dead, calls }
