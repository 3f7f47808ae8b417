-- Returns the commands that the user may not run, without an entry in the server's ACL log. Writes
-- nothing.
--
-- KEYS     a lock and its companion keys, or the keys of the deferred calls of one function; none
--          to ask for all locks
-- ARGV[1]  the channel of grants; empty without waiters
-- ARGV[2]  a channel that these locks do not use
-- ARGV     the rest: names of commands
-- returns  1, or 0 when the user may write some keys only and the rights to commands on keys cannot
--          be known without a key; then the denied commands, those that the server does not know
--          with a `?` before them; a `&` when the channel is denied; and a `*` when the other one
--          is allowed to a user who may write some keys only. On a server before Redis 7 1, and no
--          command
local may = redis.acl_check_cmd
if not may then
  return { 1 }
end
-- Matches no pattern for some keys only.
local key = KEYS[1] or '\1 any key'
local keyless = { time = true, wait = true, asking = true, pubsub = true }
local channels = { subscribe = true, ssubscribe = true, publish = true, spublish = true }
local writes = { 'set', 'del', 'pexpire', 'zadd', 'hset' }

-- With a key wherever there is one, because the server looks for it. SET also checks a value.
local function ask(command)
  local name, sub = command:match('^([^|]+)|?(.*)$')
  if sub ~= '' then
    return may(name, sub)
  end
  if keyless[command] or channels[command] then
    return may(command)
  end
  if command == 'set' then
    return may(command, key, '')
  end
  return may(command, key)
end

-- Whether the command is allowed, and whether the server knows it: an unknown command raises an
-- error.
local function allowed(command)
  local known, yes = pcall(ask, command)
  return known and yes, known
end

-- With the arguments of the command: SUBSCRIBE would take a second one for another channel.
local function may_use_channel(name, channel)
  if name == 'publish' or name == 'spublish' then
    return may(name, channel, '')
  end
  return may(name, channel)
end

local some = #KEYS > 0
for _, command in ipairs(writes) do
  some = some or allowed(command)
end
local reply = { some and 1 or 0 }
local channel, other, channel_allowed, other_allowed = ARGV[1], ARGV[2], true, false
for nth = 3, #ARGV do
  local command = ARGV[nth]
  local name = command:match('^[^|]+')
  if some or channels[name] or keyless[name] then
    local yes, known = allowed(command)
    if not yes then
      reply[#reply + 1] = (known and '' or '?') .. command
    elseif channels[name] then
      channel_allowed = channel_allowed and may_use_channel(name, channel)
      other_allowed = other_allowed or not some and may_use_channel(name, other)
    end
  end
end
if not channel_allowed then
  reply[#reply + 1] = '&'
end
if other_allowed then
  reply[#reply + 1] = '*'
end
return reply
