-- The queue of a lock: put before the scripts that work on it.
--
-- KEYS[1]  the lock: its holder's token, and nothing else; or "label/shared", for those in KEYS[5]
-- KEYS[2]  the queue: a sorted set of tokens by ticket
-- KEYS[3]  the records: a hash of "deadline|ttl|fenced|probe|id|channel|callers|limit|usual" by
--          token. "usual", the usual hold time in milliseconds, is for people, and may be missing
-- KEYS[4]  the last fence of this lock, in microseconds
-- KEYS[5]  the holders that share the lock: a sorted set of tokens by the end of their leases, in
--          milliseconds
--
-- The id of a waiter is its number, in NUMBER_DIGITS digits, and then a secret of its last request.
-- Only a grant carries the secret: a client that sees all pushes learns it too late to forge one.
--
-- A request has a limit: it is granted while fewer holders share the lock. The limit of an
-- exclusive request is 1. A shared one has no limit, which is 0.
--
-- All times are the server's. GETEX without options reads like GET but counts as a write. A replica
-- refuses a script that begins with it (READONLY), where GET would return old data. A full server
-- accepts it, and checks no write after the first one.

local NUMBER_DIGITS = 20
-- Most fences of one grant: for the holders of one process, one after the other.
local FENCES_AT_ONCE = 256
-- Larger numbers are not exact, and a fence would be issued twice.
local LARGEST_FENCE = 2 ^ 53
-- Most dead waiters that one call removes, for all locks together; see promote.
local DEAD_AT_ONCE = 128
-- Most waiters that one call lets in to share a lock, for all locks together.
local ENTER_AT_ONCE = 256

-- Whether a lock with this value belongs to the holders in KEYS[5]: as in token.rs.
local function is_shared(value)
  return value and string.sub(value, -7) == '/shared'
end

-- Whether a value is a token of this library, and not another program's: as in token.rs.
local function is_ours(value)
  return is_shared(value)
    or string.find(string.sub(value, -33), '^/' .. string.rep('[0-9a-f]', 32) .. '$')
end

local clock
local function now_us()
  clock = clock or redis.call('TIME')
  return clock[1] * 1000000 + clock[2]
end

local function now_ms()
  return math.floor(now_us() / 1000)
end

local function micros(number)
  -- A '%d' is limited to 32 bits on some servers.
  return string.format('%.0f', number)
end

local function last_fence()
  return tonumber(redis.call('GET', KEYS[4])) or 0
end

local function has_fences()
  return last_fence() < LARGEST_FENCE
end

-- Numbers larger than every earlier fence of this lock, as "first-last", or "last" if it is only
-- one. They end at the server's time, which keeps the order when the last fence is forgotten after
-- `fence_ttl` milliseconds. nil when the fences are used up.
local function next_fences(fence_ttl)
  local before = last_fence()
  if not (before < LARGEST_FENCE) then
    return nil
  end
  local last = math.max(before + 1, now_us())
  redis.call('SET', KEYS[4], micros(last), 'PX', fence_ttl)
  -- Where there was none, the numbers before it may have been given and forgotten.
  local first = before > 0 and math.max(before + 1, last - FENCES_AT_ONCE + 1) or last
  return first < last and micros(first) .. '-' .. micros(last) or micros(last)
end

local function leave(token)
  redis.call('ZREM', KEYS[2], token)
  redis.call('HDEL', KEYS[3], token)
end

local function record_of(token)
  local record = redis.call('HGET', KEYS[3], token) or ''
  return string.match(record, '^(%d+)|(%d+)|(%d)|(%d)|(%d+)|([^|]*)|?%d*|?(%d*)')
end

-- In a cluster each slot has its own channel, which its node and the replicas of the node serve.
local function is_in_a_slot(channel)
  return string.sub(channel, 1, 5) == 'lm1:{'
end

-- The push to a waiter: the lock is granted for `px` milliseconds from now on.
local function push_of(id, fences, px)
  return id .. '|' .. fences .. '|' .. micros(now_us()) .. '|' .. px
end

local function publish(channel, push)
  return redis.pcall(is_in_a_slot(channel) and 'SPUBLISH' or 'PUBLISH', channel, push)
end

-- Makes a waiter ask again.
local function push_to_ask(id, channel)
  publish(channel, string.sub(id, 1, NUMBER_DIGITS) .. '|0|0|0')
end

-- Whether a waiter's channel has subscribers here. Asked before a push is sent: a subscriber on
-- another node of a cluster, or on an old primary, receives the push and is not counted, and must
-- not believe in a lock that was handed off meanwhile. An error counts as a subscriber.
local function has_subscribers(channel)
  local count = is_in_a_slot(channel) and 'SHARDNUMSUB' or 'NUMSUB'
  local listeners = redis.pcall('PUBSUB', count, channel)[2]
  return type(listeners) ~= 'number' or listeners > 0
end

-- Makes the head of the queue ask again.
local function push_to_head()
  local head = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  if head then
    local _, _, _, _, id, channel = record_of(head)
    if id then
      push_to_ask(id, channel)
    end
  end
end

-- The known numbers of holders, by the names of KEYS[5]. A write to KEYS[5] after the first count
-- has to change the number, too.
local counted = {}

-- The number of those that share the lock. The others' leases are over.
local function count_holders()
  if not counted[KEYS[5]] then
    redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', micros(now_ms()))
    counted[KEYS[5]] = redis.call('ZCARD', KEYS[5])
  end
  return counted[KEYS[5]]
end

-- Whether a request is granted beside `held`, the value of the lock.
local function may_enter(held, limit)
  if not held then
    return true
  end
  if limit == 1 or not is_shared(held) then
    return false
  end
  local count = count_holders()
  -- Without any, the set was evicted, and the value stands for holders that are not known.
  return count > 0 and (limit == 0 or count < limit)
end

-- Keeps the holders until the last lease ends; returns how long.
local function keep_holders()
  local ends = redis.call('ZRANGE', KEYS[5], -1, -1, 'WITHSCORES')[2]
  local left = micros(math.max(ends - now_ms(), 1))
  redis.call('PEXPIRE', KEYS[5], left)
  return left
end

-- Keeps a shared lock until the last lease ends.
local function keep_for_the_last()
  redis.call('PEXPIRE', KEYS[1], keep_holders())
end

-- Grants the lock to a token for `px` milliseconds; returns the lock's new value.
local function enter(token, limit, px, held)
  if limit == 1 then
    redis.call('SET', KEYS[1], token, 'PX', px)
    return token
  end
  if not held then
    -- Another program may have deleted the lock of earlier holders.
    redis.call('DEL', KEYS[5])
    counted[KEYS[5]] = nil
  end
  local new = redis.call('ZADD', KEYS[5], micros(now_ms() + px), token)
  counted[KEYS[5]] = counted[KEYS[5]] and counted[KEYS[5]] + new
  local value = string.sub(token, 1, -33) .. 'shared'
  redis.call('SET', KEYS[1], value, 'PX', keep_holders())
  return value
end

-- Hands the lock off to the first live waiters, as many as may share it, for at most
-- `confirm_window` milliseconds until a waiter confirms it. `held` is the value of the lock that
-- stays, if any. Returns the lock's new value, after
--
--   nil    when nobody waits any more,
--   true   when the next waiter has to wait,
--   false  when there were too many waiters at the head for one call: DEAD_AT_ONCE dead ones or
--          ENTER_AT_ONCE others in all calls together, but each call checks at least one,
--   `caller` when that is the next one, and may enter. It needs no push, because it gets the reply.
local dead, entered = 0, 0
local function promote(held, confirm_window, fence_ttl, caller)
  repeat
    local head
    if held then
      head = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
    else
      head = redis.call('ZPOPMIN', KEYS[2])[1]
    end
    if not head then
      return nil, held
    end
    local deadline, ttl, fenced, probe, id, channel, limit = record_of(head)
    limit = tonumber(limit) or 1
    local lives = deadline and tonumber(deadline) * 1000 > now_us()
    local is_reachable = lives and (head == caller or probe == '0' or has_subscribers(channel))
    if held and is_reachable and not may_enter(held, limit) then
      return true, held
    end
    if held then
      redis.call('ZREM', KEYS[2], head)
    end
    redis.call('HDEL', KEYS[3], head)
    if head == caller then
      return head, held
    end
    local fences = '0'
    if is_reachable and fenced == '1' then
      fences = next_fences(fence_ttl)
    end
    if is_reachable and fences then
      local px = math.min(tonumber(ttl), tonumber(confirm_window))
      held = enter(head, limit, px, held)
      publish(channel, push_of(id, fences, px))
      if limit == 1 then
        return true, held
      end
      entered = entered + 1
    else
      if lives then
        -- Dead, and the next one is checked; or subscribed elsewhere, or there is no fence for it.
        push_to_ask(id, channel)
      end
      dead = dead + 1
    end
  until dead >= DEAD_AT_ONCE or entered >= ENTER_AT_ONCE
  return false, held
end

