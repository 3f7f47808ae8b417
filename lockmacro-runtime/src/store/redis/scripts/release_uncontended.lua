-- Gives locks back, each if it is still its token's own and nobody waits for it. For who never stood in
-- line: it takes less than release.lua, which is called when somebody waits. The locks of many callers
-- come together.
--
-- KEYS     of each lock: the lock itself, and who waits, see queue.lua
-- ARGV     of each lock the token
-- returns  of each lock 1 when it was held by its token, else 0; 2 when nothing was done because
--          somebody waits, and -1 when it has to be asked for by itself. Of one lock only this number
--
-- As in release_unqueued.lua the first thing is a GETEX.
local function give_back(lock, line, token)
  if redis.call('GETEX', lock) ~= token then
    return 0
  end
  if redis.call('ZCARD', line) > 0 then
    return 2
  end
  redis.call('DEL', lock)
  return 1
end

if #ARGV == 1 then
  return give_back(KEYS[1], KEYS[2], ARGV[1])
end
local found = {}
for nth = 1, #ARGV do
  local done, number = pcall(give_back, KEYS[2 * nth - 1], KEYS[2 * nth], ARGV[nth])
  found[nth] = done and number or -1
end
return found
