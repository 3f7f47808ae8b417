-- Releases a lock if the token still holds it, and hands it off to the first waiter; removes the
-- token from the queue if it waits. Idempotent.
--
-- ARGV[1]  the token
-- ARGV[2]  the time for which the key stays nevertheless, in milliseconds; 0 for none
-- ARGV[3]  the confirm window in milliseconds
-- ARGV[4]  the retention of the last fence in milliseconds
-- returns  1 when the token held the lock, else 0
if not held then
  local was_head = redis.call('ZRANK', KEYS[2], ARGV[1]) == 0
  -- Also where the key holds no string, and could not be read.
  leave(ARGV[1])
  if type(value) == 'table' then
    return value
  end
  -- The release of another program sends no push: the head of the queue then asks often, and has
  -- to learn that it is the head.
  if was_head and not (value and is_ours(value)) then
    push_to_head()
  end
  return 0
end
if ARGV[2] == '0' then
  local head = promote(ARGV[3], ARGV[4])
  if not head then
    redis.call('DEL', KEYS[1])
  end
  if head == false then
    push_to_head()
  end
  return 1
end
-- The label stays, the token does not: a renewal in flight finds nothing to renew.
local placeholder = string.gsub(ARGV[1], '[^/]+$', string.rep('0', 32))
local set = redis.pcall('SET', KEYS[1], placeholder, 'PX', ARGV[2])
if type(set) == 'table' and set.err then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
-- The head asks again, and learns the time left.
push_to_head()
return 1
