-- The beginning of release.lua, with its KEYS and ARGV: mostly the queue is empty, and then no more
-- has to be done, nor defined. The rest uses `value` and `held`.
--
-- Neither GETEX nor DEL needs memory, so a lock can be released on a full server; and after a first
-- write a script may continue to write.
local value = redis.pcall('GETEX', KEYS[1])
local held = value == ARGV[1]
if held and ARGV[2] == '0' and redis.call('ZCARD', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1
end
