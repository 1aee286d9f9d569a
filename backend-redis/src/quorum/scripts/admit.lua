-- What the server knows of the namespace. In another reign it may have forgotten, and pauses from when that was first met.
--
-- KEYS  space
-- ARGV  run, terms, the pause in milliseconds of a manager that may hold by them or 0, what the clocks of all were when a look
--       found this run blank or nothing
-- Answer: {now, 1 if it is whole or 0, largest number, 1 if it was whole in an earlier run and has that one's data or 0, 1 if it
-- was ever told anything or 0, the longest of those pauses, terms, the runs that were blank beside it, what the clocks
-- were, id}

local run, terms, pause, clocks = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local known = redis.call('HMGET', KEYS[1], 'run', 'whole', 'max', 'terms', 'beside', 'since', 'claims', 'floor', 'pause', 'id')
local whole, since, claims, paused = known[2] == '1', known[6], known[7] == '1', tonumber(known[9]) or 0
if known[1] ~= run then
  whole, claims, since, paused = false, whole or claims, nil, 0
  redis.call('HSET', KEYS[1], 'run', run, 'whole', '0', 'claims', claims and '1' or '0', 'pause', '0', 'since', '')
elseif not whole and (since or '') == '' and clocks ~= '' then
  since = clocks
  redis.call('HSET', KEYS[1], 'since', since)
end
-- Whoever comes first agrees on them for all.
if not whole and not known[4] then
  known[4] = terms
  redis.call('HSET', KEYS[1], 'terms', terms)
end
if not whole and known[4] ~= terms and paused < pause then
  paused = pause
  redis.call('HSET', KEYS[1], 'pause', text(pause))
end
local flag = { [true] = 1, [false] = 0 }
return { clock(), flag[whole], tonumber(known[3]) or 0, flag[claims], known[8] and 1 or 0, paused, known[4] or '', known[5] or '', since or '', known[10] or '' }
