end

-- Does it with each lock, whatever became of the others.
--
-- returns  1 when every lock was held by the token, else 0
local result, failure = 1, nil
for nth = 1, locks do
  turn_to(nth)
  local done, held = pcall(one)
  if done then
    result = math.min(result, held)
  elseif string.find(type(held) == 'table' and held.err or held, 'WRONGTYPE', 1, true) then
    -- Whatever is there now, it is not ours.
    result = 0
  else
    failure = failure or held
  end
end
if failure then
  return type(failure) == 'table' and failure or { err = failure }
end
return result
