-- What the server knows of the namespace. One that came up since then may have forgotten, unless all that it wrote
-- was on its disk.
--
-- KEYS  space
-- ARGV  run, whether its disk is trusted (1 or 0) if that was agreed on, by these terms
-- Answer: {now, 1 if it is whole or 0, largest number, what was agreed on or nil, the runs that were blank beside it or nil}

local now = clock()
local known = redis.call('HMGET', KEYS[1], 'run', 'whole', 'max', 'terms', 'beside')
local whole = known[2] == '1'
if known[1] ~= ARGV[1] then
  whole = whole and ARGV[2] == '1' and known[4] == ARGV[3]
  redis.call('HSET', KEYS[1], 'run', ARGV[1], 'whole', whole and '1' or '0')
end
return { now, whole and 1 or 0, tonumber(known[3]) or 0, known[4], known[5] }
