-- Lists jobs by due time.
--
-- ARGV[1]  "waiting", "running" or "dead"
-- ARGV[2]  the number of jobs to skip
-- ARGV[3]  the most jobs to return
-- ARGV[4]  the most bytes of arguments and errors to return, the first job excepted
-- returns  { the number of jobs; for each { its id, arguments, key, { how often it was tried and
--          busy }, its last error, and its time in milliseconds from now } }
local FAR = 2 ^ 53
local states = { waiting = KEYS[2], running = KEYS[3], dead = KEYS[4] }
local state = states[ARGV[1]]
local found, total = {}, redis.call('ZCARD', state)
if ARGV[3] == '0' then
  return { total, found }
end
local listed = redis.call('ZRANGE', state, ARGV[2], ARGV[2] + ARGV[3] - 1, 'WITHSCORES')
local room = tonumber(ARGV[4])
for nth = 1, #listed, 2 do
  local id = listed[nth]
  local call = redis.call('HMGET', KEYS[1], id, id .. '#k', id .. '#n', id .. '#b', id .. '#e')
  room = room - #(call[1] or '') - #(call[5] or '')
  if room < 0 and #found > 0 then
    break
  end
  found[#found + 1] = {
    id,
    call[1] or '',
    call[2] or '',
    { call[3] or '0', call[4] or '0' },
    call[5] or '',
    -- Other programs may have stored any time, infinity included.
    number(math.max(-FAR, math.min(tonumber(listed[nth + 1]) - now, FAR))),
  }
end
return { total, found }
