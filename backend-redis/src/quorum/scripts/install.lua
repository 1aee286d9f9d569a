-- Tells a server what it may have forgotten: from here on it votes.
--
-- KEYS  space
-- ARGV  run, floor, what was agreed on, the runs that were blank beside it
-- Answer: 1, or 0 if it knows already, or has come up again

local known = redis.call('HMGET', KEYS[1], 'run', 'whole', 'max')
if known[1] ~= ARGV[1] or known[2] == '1' then
  return 0
end
-- Its clock, too, where what the others know may be less: what it remembers may be old.
local floor = math.max(tonumber(ARGV[2]), clock())
local max = math.max(tonumber(known[3]) or 0, floor)
local told = { 'whole', '1', 'floor', text(floor), 'max', text(max), 'terms', ARGV[3], 'beside', ARGV[4] }
redis.call('HSET', KEYS[1], unpack(told))
return 1
