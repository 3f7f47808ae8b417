-- The queue of a lock: put before the scripts that work on it.
--
-- KEYS[1]  the lock: its holder's token, and nothing else
-- KEYS[2]  the queue: a sorted set of tokens by ticket
-- KEYS[3]  the records: a hash of "deadline|ttl|fenced|probe|id|channel|callers" by token
-- KEYS[4]  the last fence of this lock, in microseconds
--
-- All times are the server's. GETEX without options reads like GET but counts as a write. A replica
-- refuses a script that begins with it (READONLY), where GET would return old data. A full server
-- accepts it, and checks no write after the first one.

-- Most fences of one grant: for the holders of one process, one after the other.
local FENCES_AT_ONCE = 256
-- Larger numbers are not exact, and a fence would be issued twice.
local LARGEST_FENCE = 2 ^ 53
-- Most dead waiters that one call removes, for all locks together; see promote.
local DEAD_AT_ONCE = 128

-- Whether a value is a token of this library, and not another program's: as in token.rs.
local function is_ours(value)
  return string.find(string.sub(value, -33), '^/' .. string.rep('[0-9a-f]', 32) .. '$')
end

local clock
local function now_us()
  clock = clock or redis.call('TIME')
  return clock[1] * 1000000 + clock[2]
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
  return string.match(record, '^(%d+)|(%d+)|(%d)|(%d)|(%d+)|([^|]*)')
end

-- In a cluster each slot has its own channel, which its node and the replicas of the node serve.
local function is_in_a_slot(channel)
  return string.sub(channel, 1, 5) == 'lm1:{'
end

-- The push to a waiter: the lock is granted for `px` milliseconds from now on; with 0 the waiter
-- has to ask again.
local function push_of(id, fences, px)
  return id .. '|' .. fences .. '|' .. micros(now_us()) .. '|' .. px
end

local function publish(channel, push)
  return redis.pcall(is_in_a_slot(channel) and 'SPUBLISH' or 'PUBLISH', channel, push)
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
      publish(channel, push_of(id, '0', 0))
    end
  end
end

-- Hands the lock off to the first live waiter, for at most `confirm_window` milliseconds until the
-- waiter confirms it; returns the waiter's token. nil when the queue is empty; false when too many
-- dead waiters were at the head: DEAD_AT_ONCE in all calls together, but each call checks at least
-- one.
--
-- `caller` needs no push, because it gets the reply.
local dead = 0
local function promote(confirm_window, fence_ttl, caller)
  repeat
    local head = redis.call('ZPOPMIN', KEYS[2])[1]
    if not head then
      return nil
    end
    local deadline, ttl, fenced, probe, id, channel = record_of(head)
    redis.call('HDEL', KEYS[3], head)
    if head == caller then
      return head
    end
    if deadline and tonumber(deadline) * 1000 > now_us() then
      local is_reachable = probe == '0' or has_subscribers(channel)
      local fences = '0'
      if is_reachable and fenced == '1' then
        fences = next_fences(fence_ttl)
      end
      if is_reachable and fences then
        local px = tonumber(ttl) < tonumber(confirm_window) and ttl or confirm_window
        redis.call('SET', KEYS[1], head, 'PX', px)
        publish(channel, push_of(id, fences, px))
        return head
      end
      -- Dead, and the next one is checked; or subscribed elsewhere, or there is no fence for it.
      publish(channel, push_of(id, '0', 0))
    end
    dead = dead + 1
  until dead >= DEAD_AT_ONCE
  return false
end

