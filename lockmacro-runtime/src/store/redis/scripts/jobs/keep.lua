-- Tells that a call is still worked on.
--
-- ARGV[1]  its id
-- ARGV[2]  how often it was taken, by the worker's knowledge
-- ARGV[3]  for how many milliseconds from now
-- returns  1, or 0 when it is not that worker's any more
local id = ARGV[1]
if not is_taken(id, ARGV[2]) then
  return 0
end
leave(id)
-- It was given up when its worker was not heard of for too often.
redis.call('ZREM', KEYS[4], id)
redis.call('ZADD', KEYS[3], number(now + ARGV[3]), id)
touch()
return 1
