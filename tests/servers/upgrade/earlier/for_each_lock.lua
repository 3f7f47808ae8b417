-- Runs the script for each lock, whatever the result for the others.
--
-- returns  1 when the token held every lock, else 0
local result, failure = 1, nil
for nth = 1, locks do
  select_lock(nth)
  local done, held = pcall(one)
  if type(held) == 'table' then
    done, held = false, held.err
  end
  if done then
    result = math.min(result, held)
  elseif string.find(held, 'WRONGTYPE', 1, true) then
    -- The key holds something else now, and not the token.
    result = 0
  else
    failure = failure or held
  end
end
-- Before Redis 7 the text starts with its position in the script, and is wrapped when it is raised.
if failure and string.sub(failure, 1, 1) == '@' then
  error(failure, 0)
end
return failure and { err = failure } or result
