-- Releases locks, each if its token still holds it and its queue is empty. For tokens that never
-- waited: it costs less than release.lua, which is called when there are waiters. Merges the calls
-- of many callers.
--
-- KEYS     for each lock: the lock and its queue, see queue.lua
-- ARGV     for each lock its token
-- returns  for each lock 1 when its token held it, else 0; 2 when nothing was done because there
--          are waiters; see for_each_call.lua
--
-- As in release_unqueued.lua the first command is a GETEX.
local calls = #ARGV

local function one(nth)
  local lock, queue, token = KEYS[2 * nth - 1], KEYS[2 * nth], ARGV[nth]
  local held = redis.call('GETEX', lock)
  if held and held ~= token then
    return 0
  end
  if redis.call('ZCARD', queue) > 0 then
    return 2
  end
  return held and redis.call('DEL', lock) or 0
end

