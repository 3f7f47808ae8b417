-- The beginning of release.lua, with its KEYS and ARGV: mostly nobody waits, and then no more is to
-- be done, nor defined. `held` is for the rest of it.
--
-- Neither GETEX nor DEL needs memory, so a lock can be given back when the server is full; and
-- after a first write a script may go on to write.
local held = redis.call('GETEX', KEYS[1]) == ARGV[1]
if held and ARGV[2] == '0' and redis.call('ZCARD', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1
end

