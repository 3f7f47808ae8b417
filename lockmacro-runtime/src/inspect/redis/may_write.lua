-- Finds a beginning with which the user may write all keys. Writes nothing.
--
-- ARGV     the beginnings of a key, the shortest one first
-- returns  the number of the first such one, from 1; 0 for none
for nth, start in ipairs(ARGV) do
  if redis.acl_check_cmd('set', start .. '\1 any key', '') then
    return nth
  end
end
return 0
