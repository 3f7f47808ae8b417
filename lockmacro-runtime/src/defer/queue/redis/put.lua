-- Stores a job. Idempotent for an id, also shortly after the job has ended.
--
-- ARGV[1]  its id
-- ARGV[2]  the milliseconds until it is due
-- ARGV[3]  its arguments
-- ARGV[4]  the key of its lock
-- ARGV[5]  "all", or which of the jobs with the same key waits: "first" or "latest"
-- ARGV[6]  the most jobs that may wait
-- ARGV[7]  the number of leases that may end without a report
-- ARGV[8]  the milliseconds for which later jobs put it off, 0 where they do not
-- ARGV[9]  where its numbers of workers begin: those of an earlier job with this id, which was
--          removed, must not have this one
-- returns  { the id under which it waits; the milliseconds until that is due, 0 for one that has
--          ended }, nil when too many wait
local id, delay, arguments, key, keep, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local known = redis.call('ZSCORE', KEYS[7], id)
local there = redis.call('HEXISTS', KEYS[1], id) == 1 and id
if not there and keep ~= 'all' then
  local other = redis.call('HGET', KEYS[5], key)
  local due = other and redis.call('ZSCORE', KEYS[2], other)
  there = due and other
  if due and keep == 'latest' and not known then
    local is_tried = count(other .. '#n', 0) + count(other .. '#b', 0) > 0
    restart(other)
    redis.call('HSET', KEYS[1], other, arguments, other .. '#a', ARGV[7], other .. '#u', number(now))
    if is_tried then
      -- As a first one: the pause after a failure with other arguments is not for these.
      redis.call('HSET', KEYS[1], other .. '#l', number(now + ARGV[8]))
      wait(other, tonumber(delay))
    else
      local limit = tonumber(redis.call('HGET', KEYS[1], other .. '#l')) or 0
      due = math.max(tonumber(due), math.min(now + delay, limit))
      redis.call('ZADD', KEYS[2], number(due), other)
    end
    -- A repeated request must not replace the arguments of later ones.
    remember(id)
  end
end
if there then
  local due = tonumber(redis.call('ZSCORE', KEYS[2], there)) or now
  return { there, math.max(due - now, 0) }
end
if known then
  return { id, 0 }
end
if redis.call('ZCARD', KEYS[2]) >= tonumber(most) then
  return nil
end
redis.call('HSET', KEYS[1], id, arguments, id .. '#k', key, id .. '#a', ARGV[7])
if ARGV[9] then
  redis.call('HSET', KEYS[1], id .. '#t', ARGV[9], id .. '#s', ARGV[9])
end
if ARGV[8] ~= '0' then
  redis.call('HSET', KEYS[1], id .. '#l', number(now + ARGV[8]))
end
if keep ~= 'all' then
  redis.call('HSET', KEYS[1], id .. '#u', number(now))
  redis.call('HDEL', KEYS[5], key)
end
wait(id, tonumber(delay))
touch()
return { id, tonumber(delay) }
