-- Tells which commands the user may not run, without a word in the server's ACL log. Changes nothing.
--
-- KEYS     a lock and its companion keys; none to ask on behalf of all locks
-- ARGV     the names of commands
-- returns  1, and those of the commands that are denied, or with a `?` before them unknown; 0 when the user may write some keys only, and
--          that cannot be told without a lock. A server before Redis 7 cannot tell: then 1, and none
local may = redis.acl_check_cmd
if not may then
  return { 1 }
end
-- No pattern for some keys has this one.
local key = KEYS[1] or '\1 any key'
local keyless = { time = true, wait = true, asking = true }
local writes = { 'set', 'del', 'pexpire', 'zadd', 'hset' }

-- Always with a key where there is one: the server looks for it. SET looks at what comes after.
local function ask(command)
  if keyless[command] then
    return may(command)
  end
  if command == 'set' then
    return may(command, key, '')
  end
  return may(command, key)
end

-- Whether it is allowed, and whether the server knows it: one that it does not is an error.
local function allowed(command)
  local known, yes = pcall(ask, command)
  return known and yes, known
end

local some = #KEYS > 0
for _, command in ipairs(writes) do
  some = some or allowed(command)
end
if not some then
  return { 0 }
end
local told = { 1 }
for _, command in ipairs(ARGV) do
  local yes, known = allowed(command)
  if not yes then
    told[#told + 1] = (known and '' or '?') .. command
  end
end
return told
