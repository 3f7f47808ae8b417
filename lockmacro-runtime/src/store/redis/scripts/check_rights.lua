-- Returns the rights that the user lacks, without an entry in the server's ACL log, and whether the
-- server evicts keys. Writes nothing.
--
-- KEYS     a lock and its companion keys; none to ask for all locks
-- ARGV[1]  the pattern of the channels of grants, as ACL SETUSER takes it
-- ARGV     the rest: names of commands
-- returns  { 1, or 0 when the user may write some keys only and the rights to commands on keys
--          cannot be known without a key; the missing rights, as ACL SETUSER takes them; the policy
--          by which the server evicts keys, '' if it evicts none or the user may not ask }. On a
--          server before Redis 7 { 1, no right, nil }
local may = redis.acl_check_cmd
if not may then
  return { 1, {}, false }
end
-- Matches no pattern for some keys only.
local key = KEYS[1] or '\1 any key'
-- As a name it matches its own pattern.
local channel = string.sub(ARGV[1], 2)
local keyless = { time = true, wait = true, asking = true }

-- Whether the command is allowed; nil when the server does not know it, which raises an error.
local function allowed(...)
  local known, yes = pcall(may, ...)
  if known then
    return yes
  end
end

-- The key stands for the value, too: another argument of DEL would be another key.
local some = #KEYS > 0 or allowed('set', key, key) or allowed('del', key, key)
local missing, lacks_channel = {}, false
for nth = 2, #ARGV do
  local command = ARGV[nth]
  local name, sub = string.match(command, '^([^|]+)|?(.*)$')
  local has_channel = string.find(name, 'publish') or string.find(name, 'subscribe')
  local yes = true
  if sub ~= '' then
    yes = allowed(name, sub)
  elseif has_channel or keyless[name] then
    yes = allowed(name)
  elseif some then
    yes = allowed(name, key, key)
  end
  if yes == nil and not has_channel and sub == '' then
    return redis.error_reply('ERR unknown command `' .. string.upper(name) .. '`')
  elseif yes == false then
    missing[#missing + 1] = '+' .. command
  elseif yes and has_channel and not may(name, channel, channel) then
    lacks_channel = true
  end
end
if lacks_channel then
  missing[#missing + 1] = ARGV[1]
end

local memory = allowed('info', 'memory') and redis.pcall('INFO', 'memory')
memory = type(memory) == 'string' and memory or ''
local policy = string.match(memory, 'maxmemory_policy:([%w-]+)') or 'noeviction'
local evicts = policy ~= 'noeviction' and not string.find(memory, '\nmaxmemory:0\r')
return { some and 1 or 0, missing, evicts and policy or '' }
