-- Several locks in one call: put before scripts for one lock, which find the keys of the current
-- lock in KEYS.
--
-- KEYS  five for each lock, see queue.lua, one lock after the other
local all, KEYS = KEYS, {}
local locks = #all / 5

local function select_lock(nth)
  for part = 1, 5 do
    KEYS[part] = all[5 * (nth - 1) + part]
  end
end

