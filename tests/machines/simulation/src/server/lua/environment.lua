-- The globals of scripts. Receives the functions that are not written in Lua, and a table of the
-- globals; returns what scripts use as globals, and what runs a script.
local native, globals = ...
local error, pairs, pcall, setmetatable, tostring, type, xpcall =
  error, pairs, pcall, setmetatable, tostring, type, xpcall

local function locked(table, name)
  return setmetatable({}, {
    __index = table,
    __newindex = function()
      error('Attempt to modify a readonly table', 2)
    end,
    __metatable = false,
  })
end

local redis = {
  pcall = native.call,
  error_reply = native.error_reply,
}

-- Native functions cannot raise an error that a script can read, so the next two raise it.
function redis.call(...)
  local reply = native.call(...)
  if type(reply) == 'table' and reply.err then
    error(reply, 0)
  end
  return reply
end

function redis.acl_check_cmd(...)
  local allowed = native.may_run(...)
  if allowed == nil then
    error({ err = 'ERR Invalid command passed to redis.acl_check_cmd()' }, 0)
  end
  return allowed
end

-- In Redis the error of a command is a table, but caught by pcall it is a text.
local function with_text(done, raised, ...)
  if not done and type(raised) == 'table' and type(raised.err) == 'string' then
    return done, raised.err
  end
  return done, raised, ...
end

function globals.pcall(...)
  return with_text(pcall(...))
end

globals.redis = locked(redis)
for _, library in pairs({ 'math', 'string', 'table' }) do
  globals[library] = locked(globals[library])
end

local environment = {}
globals._G = environment
setmetatable(globals, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})
setmetatable(environment, {
  __index = globals,
  __newindex = function()
    error('Attempt to modify a readonly table', 2)
  end,
  __metatable = false,
})

local function with_place(raised)
  if type(raised) ~= 'table' then
    raised = { err = 'ERR ' .. tostring(raised) }
  end
  raised.source, raised.line = native.place()
  return raised
end

return environment, function(script)
  return xpcall(script, with_place)
end
