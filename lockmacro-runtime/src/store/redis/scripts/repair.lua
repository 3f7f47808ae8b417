-- Gives a lock over several nodes back to its holder on a node that has forgotten it, unless somebody
-- has it there. Raises the node's last fence to the holder's: it was forgotten as well.
--
-- KEYS[1]  the lock
-- KEYS[2]  the last fence of this lock
-- ARGV[1]  the token
-- ARGV[2]  the rest of the ttl in milliseconds
-- ARGV[3]  the holder's last fence, 0 without one
-- ARGV[4]  the retention of the fence in milliseconds
-- returns  1 when the token got the lock, else 0
--
-- It is sent as text, as a server that has forgotten the lock does not know the script.
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return 0
end
if (tonumber(redis.call('GET', KEYS[2])) or 0) < tonumber(ARGV[3]) then
  redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
end
return 1
