-- What follows up to each.lua is a script for one lock.
local function one()
