-- Asks for a lock: after the plain SET was refused or not answered, for a grant with a fence, and
-- to join the queue. Idempotent for a token: a lock that the token holds is granted again, with at
-- least the whole ttl and with new fences; a rank in the queue is kept, and its record refreshed.
--
-- ARGV[1]  the token
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  1 for a grant with a fence, else 0
-- ARGV[4]  the confirm window in milliseconds
-- ARGV[5]  the retention of the last fence in milliseconds
-- ARGV[6]  the limit, see queue.lua. The rest is for waiters only
-- ARGV[7]  the longest queue; 0 to be refused when contended
-- ARGV[8]  the time for which a waiter stays in the queue without asking, in milliseconds
-- ARGV[9]  the record of the waiter: "ttl|fenced|probe|id|channel|callers|limit|usual", see
--          queue.lua
-- returns  1 when granted, or the fences; else { time left in milliseconds, -1 without expiry; the
--          key's value }, and for a waiter also { rank, -1 when the queue is full; the time in
--          microseconds }
local LAPSED_AT_ONCE = 64
local DEAD_HEADS_AT_ONCE = 8

local token, ttl, fenced, confirm_window, fence_ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local limit, max_queue = tonumber(ARGV[6]), tonumber(ARGV[7] or 0)

-- The length of the queue. In a full queue some waiters, from a random rank on, are checked first,
-- and those whose deadline has passed are removed.
local function queue_length()
  local count = redis.call('ZCARD', KEYS[2])
  if count < max_queue then
    return count
  end
  local first = now_us() % count
  for _, other in ipairs(redis.call('ZRANGE', KEYS[2], first, first + LAPSED_AT_ONCE - 1)) do
    local deadline = record_of(other)
    if not deadline or tonumber(deadline) * 1000 <= now_us() then
      leave(other)
    end
  end
  return redis.call('ZCARD', KEYS[2])
end

-- While another program holds the lock, the queue advances by the requests of its head, so a dead
-- waiter must not be the head.
local function clear_dead_heads()
  for _, head in ipairs(redis.call('ZRANGE', KEYS[2], 0, DEAD_HEADS_AT_ONCE - 1)) do
    local deadline, _, _, probe, id, channel = record_of(head)
    local lives = deadline and tonumber(deadline) * 1000 > now_us()
    if head == token or lives and (probe == '0' or has_subscribers(channel)) then
      return
    end
    leave(head)
    if lives then
      push_to_ask(id, channel)
    end
  end
end

-- Joins the queue, or refreshes the record there; returns the rank.
local function join_queue()
  local rank = redis.call('ZRANK', KEYS[2], token)
  if not rank then
    rank = queue_length()
    if rank >= max_queue then
      return -1
    end
    local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
    redis.call('ZADD', KEYS[2], (tonumber(last) or 0) + 1, token)
  end
  redis.call('HSET', KEYS[3], token, micros(now_ms() + ARGV[8]) .. '|' .. ARGV[9])
  -- Longer than the record of the last waiter: a later waiter removes the dead ones.
  local queue_ttl = math.floor(ARGV[8] * 3 / 2)
  redis.call('PEXPIRE', KEYS[2], queue_ttl)
  redis.call('PEXPIRE', KEYS[3], queue_ttl)
  return rank
end

-- The reply to a request that is granted.
local function granted()
  return fenced == '1' and next_fences(fence_ttl) or 1
end

-- A token that holds the lock or is in the queue goes on, also on a full server. Both branches
-- begin with a write.
local held = redis.call('GET', KEYS[1])
local is_holder = holds(token, held)
if is_holder or max_queue > 0 and redis.call('ZRANK', KEYS[2], token) then
  redis.call('GETEX', KEYS[1])
else
  needs_memory()
end
if fenced == '1' and not has_fences() then
  leave(token)
  return no_fence()
end
if is_holder then
  -- A late request may have brought the lock to a token that waits.
  leave(token)
  local fences = granted()
  extend(token, ttl, held)
  return fences
end
if may_enter(held, limit) then
  if max_queue > 0 and redis.call('ZCARD', KEYS[2]) > 0 then
    join_queue()
  end
  local first
  first, held = promote(held, confirm_window, fence_ttl, token)
  if first == token or first == nil and may_enter(held, limit) then
    local fences = granted()
    held = enter(token, limit, ttl, held)
    if limit ~= 1 then
      -- Those behind the caller may share the lock, too.
      if promote(held, confirm_window, fence_ttl) == false then
        push_to_head()
      end
    end
    return fences
  end
  if first == false and held then
    -- An earlier head was told to ask, and this call may have let it in.
    push_to_head()
  end
end

-- The lock is free, with too many dead waiters at the head: the next request removes more of them.
local contended = { held and time_left(held, limit) or 0, string.sub(held or '', 1, 256) }
if max_queue > 0 then
  if held and not is_ours(held) then
    clear_dead_heads()
  end
  contended[3] = join_queue()
  contended[4] = micros(now_us())
end
return contended
