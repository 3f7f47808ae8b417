-- Asks for several locks: all or none. Idempotent for a token: a lock that the token holds keeps
-- the time left if that is longer than the ttl, and gets new fences.
--
-- ARGV[1]  the token
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  1 for grants with fences, else 0
-- ARGV[4]  the confirm window in milliseconds
-- ARGV[5]  the retention of each last fence in milliseconds
-- ARGV[6]  the limit of each lock, see queue.lua
-- returns  1 when granted, or the fences of each; { nth } when that key, counted from 0, is not a
--          lock;
--          else { time left in milliseconds, -1 without expiry; the key's value; nth } of the first
--          contended lock
local token, ttl, fenced, confirm_window, fence_ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local limits = {}
for limit in string.gmatch(ARGV[6], '%d+') do
  limits[#limits + 1] = tonumber(limit)
end

-- The value of each key.
local values = {}
local all_ours = true
for nth = 1, locks do
  select_lock(nth)
  local held = redis.pcall('GET', KEYS[1])
  if type(held) == 'table' then
    return string.find(held.err, 'WRONGTYPE', 1, true) and { nth - 1 } or held
  end
  values[nth] = held
  all_ours = all_ours and holds(token, held)
end

-- The first write, see queue.lua: locks that the token holds are granted again by a full server,
-- too.
if all_ours then
  redis.call('GETEX', KEYS[1])
else
  needs_memory()
end

-- Which locks the token holds already.
local is_held = {}
for nth = 1, locks do
  select_lock(nth)
  local held, limit = values[nth], limits[nth]
  is_held[nth] = holds(token, held)
  if not is_held[nth] then
    local first = true
    if may_enter(held, limit) then
      -- Waiters come first.
      first, held = promote(held, confirm_window, fence_ttl)
    end
    if first == false and held then
      push_to_head()
    end
    if first ~= nil or not may_enter(held, limit) then
      local left = held and time_left(held, limit) or 0
      return { left, string.sub(held or '', 1, 256), nth - 1 }
    end
    values[nth] = held
  end
end

-- All fences before the first lock: a fence that fails must leave no lock behind.
local fences = {}
for nth = 1, fenced == '1' and locks or 0 do
  select_lock(nth)
  local done, fence = pcall(next_fences, fence_ttl)
  if not done then
    local failure = type(fence) == 'table' and fence.err or fence
    if string.find(failure, 'WRONGTYPE', 1, true) then
      return { nth - 1 }
    end
    error(fence, 0)
  end
  if not fence then
    return no_fence()
  end
  fences[nth] = fence
end
for nth = 1, locks do
  select_lock(nth)
  if is_held[nth] then
    extend(token, ttl, values[nth])
  else
    enter(token, limits[nth], ttl, values[nth])
  end
end
return fenced == '1' and fences or 1
