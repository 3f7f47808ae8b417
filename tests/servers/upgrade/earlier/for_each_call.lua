-- Calls `one` for each of the calls that were merged into this one.
--
-- returns  the reply to the only call; else for each call its reply, or -1 when it has to be sent by
--          itself
if calls == 1 then
  return one(1)
end
local replies = {}
for nth = 1, calls do
  local done, reply = pcall(one, nth)
  replies[nth] = done and reply or -1
end
return replies
