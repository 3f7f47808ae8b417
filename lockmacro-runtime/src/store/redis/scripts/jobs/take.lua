-- Takes calls that are due, for a worker that is heard of until then. Those whose worker was not
-- heard of go back first, or are given up when that was so too often. Idempotent for a question: it
-- gives the same calls again, as far as they are still due to go back when they were.
--
-- ARGV[1]  how many
-- ARGV[2]  for how many milliseconds
-- ARGV[3]  who looks again when there are none: "number|channel", empty when it cannot be told
-- ARGV[4]  after how many milliseconds it does so by itself
-- ARGV[5]  which question this is
-- ARGV[6]  how many bytes of arguments to give, but for the first one
-- ARGV[7]  how many dead letters are kept
-- returns  { in how many milliseconds to look again, at most the above; how many were waiting that
--          have no arguments, or an id that is no UTF-8, and were removed; for each that was
--          given up its id, and how often it was taken without an end; then for each call its
--          id, arguments, key, and how often it was tried, taken and busy }
local AT_ONCE = 100
local OF_THEN = 10000
-- Of calls that were stored without it.
local ATTEMPTS = 10

-- What UTF-8 has beside ASCII: the bytes from 128 to 191 follow others, not all of them in all places.
local SEQUENCES = {
  '[\241-\243][\128-\191][\128-\191][\128-\191]',
  '\240[\144-\191][\128-\191][\128-\191]',
  '\244[\128-\143][\128-\191][\128-\191]',
  '[\225-\236\238\239][\128-\191][\128-\191]',
  '\224[\160-\191][\128-\191]',
  '\237[\128-\159][\128-\191]',
  '[\194-\223][\128-\191]',
}

-- A worker knows ids as text.
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

-- Here and not by a worker: what is too much for every worker's network is given up as well.
local function is_abandoned(id)
  local fields = { id .. '#a', id .. '#t', id .. '#s' }
  local attempts, taken, told = unpack(redis.call('HMGET', KEYS[1], unpack(fields)))
  local untold = (tonumber(taken) or 0) - (tonumber(told) or 0)
  if untold <= (tonumber(attempts) or ATTEMPTS) then
    return false
  end
  give_up(id, 'it was taken ' .. number(untold) .. ' times and no end was told', ARGV[7])
  if is_text(id) then
    dead[#dead + 1] = { id, number(untold) }
  end
  return true
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', number(now), 'LIMIT', 0, AT_ONCE)) do
  redis.call('ZREM', KEYS[3], id)
  if not is_abandoned(id) then
    wait(id, 0)
  end
end

local calls, strays = {}, 0
local room = tonumber(ARGV[6])
local lease_end = number(now + ARGV[2])

local function tell(id, arguments, key)
  local tried, taken, busy = count(id .. '#n', 0), count(id .. '#t', 0), count(id .. '#b', 0)
  calls[#calls + 1] = { id, arguments, key or '', tried, taken, busy }
end

-- Tells whether there may be room for more.
local function give(id)
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
  tell(id, arguments, key)
  return true
end

local known = ARGV[1] ~= '0' and redis.call('ZSCORE', KEYS[7], ARGV[5])
if known then
  local of_then = number(known - KNOWN + ARGV[2])
  -- Others may have been taken for as long in the same millisecond.
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], of_then, of_then, 'LIMIT', 0, OF_THEN)) do
    local question, arguments, key = unpack(redis.call('HMGET', KEYS[1], id .. '#w', id, id .. '#k'))
    if question == ARGV[5] and arguments and #calls < tonumber(ARGV[1]) then
      tell(id, arguments, key)
    end
  end
else
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', number(now), 'LIMIT', 0, ARGV[1])) do
    if not give(id) then
      break
    end
  end
  if #calls > 0 then
    know(ARGV[5])
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
return { again, strays, dead, unpack(calls) }
