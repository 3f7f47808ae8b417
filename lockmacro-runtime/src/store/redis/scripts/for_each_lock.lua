-- Does it with each lock, whatever became of the others.
--
-- returns  1 when every lock was held by the token, else 0
local result, failure = 1, nil
for nth = 1, locks do
  turn_to(nth)
  local done, held = pcall(one)
  if type(held) == 'table' then
    done, held = false, held.err
  end
  if done then
    result = math.min(result, held)
  elseif string.find(held, 'WRONGTYPE', 1, true) then
    -- Whatever is there now, it is not ours.
    result = 0
  else
    failure = failure or held
  end
end
-- Before Redis 7 the text starts with a place, and is wrapped when it is raised.
if failure and string.sub(failure, 1, 1) == '@' then
  error(failure, 0)
end
return failure and { err = failure } or result
