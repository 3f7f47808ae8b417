-- Lists the only job of a key that waits, and those that workers have taken; or removes those that a
-- caller has found older than its own job, unless they were stored again since.
--
-- ARGV[1]   the key of the lock
-- ARGV[2..] of each job to remove its id and the time when it was stored; to list them: none
-- returns   of each job { its id; the time when it was stored; for how long it is stored, in
--           milliseconds }; or the number of removed ones
local function stored_at(id)
  local stored, key = unpack(redis.call('HMGET', KEYS[1], id .. '#u', id .. '#k'))
  return key == ARGV[1] and stored or nil
end

if #ARGV == 1 then
  local found = {}
  local ids = redis.call('ZRANGE', KEYS[3], 0, -1)
  ids[#ids + 1] = redis.call('HGET', KEYS[5], ARGV[1]) or nil
  for _, id in ipairs(ids) do
    local stored = stored_at(id)
    -- Earlier versions do not say when they store a job: it may be newer, and would be lost.
    if stored and stored ~= '1' then
      found[#found + 1] = { id, stored, now - (tonumber(stored) or 0) }
    end
  end
  return found
end

local removed = 0
for nth = 2, #ARGV, 2 do
  local id = ARGV[nth]
  if stored_at(id) == ARGV[nth + 1] then
    local taken = redis.call('HGET', KEYS[1], id .. '#t')
    leave(id)
    redis.call('ZREM', KEYS[3], id)
    forget(id)
    if taken then
      -- Its worker may be about to report the end of its body.
      remember(id .. '#' .. taken)
    end
    removed = removed + 1
  end
end
return removed
