-- Raises the token base, which the namespace adds to its counters. It never becomes smaller.
--
-- KEYS  the token base
-- ARGV  its least value
-- Reply: the base; nothing if it is no number, which stays

local base = redis.call('GET', KEYS[1])
if base and not string.match(base, '^%d+$') then
  return false
end
-- No token has more digits than Lua compares.
if base and tonumber(base) >= tonumber(ARGV[1]) then
  return base
end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
