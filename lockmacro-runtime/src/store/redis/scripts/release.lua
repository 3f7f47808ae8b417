-- Gives a lock back if it is still the token's own, and hands it to who waits longest; takes the
-- token out of the line if it waits. Idempotent.
--
-- ARGV[1]  the token
-- ARGV[2]  how long the key is to stay all the same, in milliseconds; 0 for not at all
-- ARGV[3]  for how long a lock is handed over until it is confirmed, in milliseconds
-- ARGV[4]  for how long the last fence is kept, in milliseconds
-- ARGV[5]  a channel whose listeners the caller tells by itself; may be missing
-- returns  1 when the lock was held by the token, or the word for one of those waiters; else 0
if not held then
  local was_head = redis.call('ZRANK', KEYS[2], ARGV[1]) == 0
  -- Also where the key could not be read, being no string.
  leave(ARGV[1])
  if type(value) == 'table' then
    return value
  end
  -- A foreign holder's release tells nobody: who is first asks often then, and learns that it is.
  if was_head and not (value and is_ours(value)) then
    tell_head()
  end
  return 0
end
if ARGV[2] == '0' then
  local head, word = promote(ARGV[3], ARGV[4], nil, ARGV[5])
  if not head then
    redis.call('DEL', KEYS[1])
  end
  if head == false then
    tell_head()
  end
  return word or 1
end
-- The label stays, the token does not: a renewal that is still under way finds nothing to renew.
local kept = string.gsub(ARGV[1], '[^/]+$', string.rep('0', 32))
local set = redis.pcall('SET', KEYS[1], kept, 'PX', ARGV[2])
if type(set) == 'table' and set.err then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
-- Who is first asks again, and learns when that is over.
tell_head()
return 1
