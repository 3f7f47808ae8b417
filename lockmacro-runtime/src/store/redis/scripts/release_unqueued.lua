-- The beginning of release.lua, with its KEYS and ARGV: mostly nobody waits, and then no more is to
-- be done, nor defined. `value` and `held` are for the rest of it.
--
-- Neither GETEX nor DEL needs memory, so a lock can be given back when the server is full; and
-- after a first write a script may go on to write.
local value = redis.pcall('GETEX', KEYS[1])
local held = value == ARGV[1]
if held and ARGV[2] == '0' and redis.call('ZCARD', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1
end

